"""What one table is left for by a repair of several: without Spark and servers."""

from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from cdc_platform.errors import ConfigError
from cdc_platform.formats.loaded import Column, LogPosition, Record
from cdc_platform.loading import repair
from cdc_platform.loading.errors import LoadRefused
from cdc_platform.loading.proof import Event, Evidence
from cdc_platform.mysql.types import parse_type
from cdc_platform.reconcile.columns import Pair, Pairing
from cdc_platform.reconcile.errors import SourceRefused, SourceUnreachable
from cdc_platform.reconcile.frames import Differing
from cdc_platform.reconcile.result import Open, TableResult

NAME = ("shop.eu", "orders")
ONE: Any = SimpleNamespace(key=True, name="id")
SOURCE: Any = SimpleNamespace(name="shop")


@pytest.fixture
def differs() -> TableResult:
    """A table of a database whose name has a dot, of which one key differs."""
    open_ = Open(Pairing((ONE,), (), {}), [Differing("d", "missing", None, ("1",))], NAME)
    return TableResult("shop.eu.orders", missing=1, open=open_)


def repaired(result: TableResult) -> repair.Repaired:
    anything: Any = SimpleNamespace()
    return repair._repaired(anything, SOURCE, anything, anything, result)


@pytest.mark.parametrize(
    "error",
    [
        LoadRefused("shop", "the columns of it change", retriable=True),
        LoadRefused("shop", "has no key"),
        ConfigError("shop.eu.orders", "the source has no such table"),
        SourceRefused("db:3306", "Table definition has changed (1412)"),
    ],
)
def test_what_concerns_one_table_is_told_of_it(differs, monkeypatch, error):
    asked = []

    def refuses(*args: Any) -> None:
        asked.append(args[-2:])
        raise error

    monkeypatch.setattr(repair, "table_of", refuses)
    done = repaired(differs)
    assert (done.rows, done.gone, done.left) == (0, 0, [str(error)])
    assert asked == [NAME]


def test_a_server_that_is_gone_ends_the_repair(differs, monkeypatch):
    def gone(*_: Any) -> None:
        raise SourceUnreachable("db:3306", "nobody answers")

    monkeypatch.setattr(repair, "table_of", gone)
    with pytest.raises(SourceUnreachable):
        repaired(differs)


def test_what_was_repaired_stays_told_where_it_cant_be_compared_again(differs):
    done, asked = repair.Repaired(differs.table, differs, rows=1), []

    def refuses(name: Any) -> list[TableResult]:
        asked.append(name)
        raise SourceRefused("db:3306", "Table definition has changed (1412)")

    assert repair._again(refuses, done) == []
    assert asked == [NAME]
    assert "not compared again" in done.left[0]
    assert repair._again(lambda _: [TableResult("shop.eu.orders")], done)[0].equal


@pytest.mark.parametrize(("type_text", "null", "other"), [("varchar(9)", None, "61"), ("int", "N", "7")])
def test_a_row_that_no_key_names_stays_and_the_others_go(monkeypatch, type_text, null, other):
    """Of a key of `tables.keys`: NULL in it has no text, or one that is no value."""
    pairing = Pairing((Pair("code", "code", "string", parse_type(type_text), True),), (), {})
    table: Any = SimpleNamespace(db="shop", name="t", columns=[Column("code", type_text, True)], every=())
    table.values, table.landed = "code", list
    landed: list[Record] = []

    @contextmanager
    def view(*_: Any):
        cursor = SimpleNamespace(connection=SimpleNamespace())
        yield SimpleNamespace(cursor=cursor, server={"id": "7"}, at=LogPosition("b.000001", 9), time_us=1)

    monkeypatch.setattr(repair, "table_of", lambda *_: table)
    monkeypatch.setattr(repair, "opened", view)
    monkeypatch.setattr(repair, "rows_by_keys", lambda *_: [])
    monkeypatch.setattr(repair.land, "path_of", lambda *_: None)
    monkeypatch.setattr(repair.land, "next_offset", lambda *_: 0)
    monkeypatch.setattr(repair.land, "land", lambda *told: landed.extend(told[-1]))
    of = Evidence("shop", 0, (Event("t/0/5/0", "b.000001", 4, None, None),))
    server: Any = SimpleNamespace(columns=lambda *_: ())

    def repaired_of(*keys: str | None) -> repair.Repaired:
        open_ = Open(pairing, [Differing(str(k), "extra", None, (k,)) for k in keys], ("shop", "t"))  # type: ignore[arg-type]
        result = TableResult("shop.t", extra=len(keys), open=open_)
        return repair._repaired(SimpleNamespace(), SOURCE, server, of, result)  # type: ignore[arg-type]

    done = repaired_of(null, other)
    assert (done.gone, [r.gone for r in landed]) == (1, [[["a" if other == "61" else "7"]]])
    assert "1 row with NULL" in done.left[0]
    done = repaired_of(null)
    assert (done.gone, done.first, len(landed), len(done.left)) == (0, None, 1, 1)
