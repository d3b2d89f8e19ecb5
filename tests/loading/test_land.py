"""How far a load is, by what landed of it: without Spark."""

import time
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

from cdc_platform.formats.loaded import Column, LogPosition, Record, encoded
from cdc_platform.lake import stores
from cdc_platform.loading import land
from cdc_platform.loading.run import WHOLE, _Loading
from cdc_platform.tables import LANDING, LOADED
from tests.rows import add

COLUMNS = [Column("id", "int", True)]
SERVER = {"id": "7", "host": "db", "port": "3306", "version": "8.4.3"}


class Numbered:
    """A server that says which it is."""

    def __init__(self, **other: str):
        self.server = SERVER | other

    def execute(self, sql: str) -> None:
        assert sql.startswith("SELECT @@server_id")

    def fetchone(self) -> tuple[Any, ...]:
        return tuple(self.server.values())

    @contextmanager
    def connected(self):
        yield self


def landed(offset: int, name: str, *, epoch: int = 0, **more: Any) -> dict[str, Any]:
    at = LogPosition("b.000001", 900 + offset)
    at_us = more.pop("time_us", 1)
    record = Record("0.0", WHOLE, SERVER, at, at_us, "shop", name, COLUMNS, "t/0/5/0", "b.000001:900", **more)
    key = land.key_of("shop", name, WHOLE)
    return {"topic": LOADED, "partition": epoch, "offset": offset, "key": key, "value": encoded(record)}


def erased(offset: int, epoch: int = 0) -> dict[str, Any]:
    gone = {"key": None, "value": None, "erased": b"left"}
    return landed(offset, "t", epoch=epoch) | gone


def newest(config: Any, name: str) -> Record:
    found = land.newest(LANDING.at(stores.lake(config), source="s"), 0, "shop", name, WHOLE)
    assert found is not None
    return found


def test_a_load_whose_end_was_erased_is_none_that_goes_on(make_config):
    config = make_config([{"name": "s", "format": "debezium", "topics": ["s"]}])
    first = [landed(0, "t", next=["5"]), erased(1), landed(2, "other", next=["7"]), erased(3, epoch=1)]
    add(config.lake, LANDING, *first, source="s")
    assert (newest(config, "t").next, newest(config, "t").last) == (None, False)
    assert newest(config, "other").next == ["7"], "what was erased before it, or in another epoch, is no part of it"


def test_a_load_that_was_erased_in_its_midst_goes_on(make_config):
    config = make_config([{"name": "s", "format": "debezium", "topics": ["s"]}])
    add(config.lake, LANDING, landed(0, "t", next=["5"]), erased(1), landed(2, "t", next=["15"]), source="s")
    assert newest(config, "t").next == ["15"]


def test_a_load_whose_rows_an_earlier_version_didnt_count_begins_anew(make_config):
    config = make_config([{"name": "s", "format": "debezium", "topics": ["s"]}])
    now = {"next": ["5"], "time_us": int(time.time() * 1e6)}
    add(config.lake, LANDING, landed(0, "t", **now), landed(1, "u", loaded=7, **now), source="s")

    def interrupted(name: str, *, same_order: bool = True, **other: str) -> Record | None:
        fields = {"db": "shop", "name": name, "columns": tuple(COLUMNS), "made": None}
        table: Any = SimpleNamespace(**fields, goes_on=lambda _: same_order)
        of: Any = SimpleNamespace(epoch=0)
        path = LANDING.at(stores.lake(config), source="s")
        return _Loading(config.source("s"), cast(Any, Numbered(**other)), table, of, path, 10).interrupted()

    assert interrupted("t") is None
    assert interrupted("u", id="8") is None, "after a failover"
    assert interrupted("u", version="8.4.4") is None, "a server made anew"
    assert interrupted("u", same_order=False) is None, "an earlier version went through it in another order"
    found = interrupted("u")
    assert found is not None and (found.loaded, found.next) == (7, ["5"])
