"""Where a transaction ends: of feeds that tell its GTID, and of those that tell the set of all executed with it."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cdc_platform import tables
from cdc_platform.config import Config
from cdc_platform.errors import ConfigError, NotReadable
from cdc_platform.reading import moments
from cdc_platform.tables import LOADED
from tests.rows import add

A, B = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562"
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
Lake = Callable[..., Callable[[str], int | str]]
TABLE = {"source": "s", "db": "shop", "table": "orders", "topic": "t"}


def place(pos: int) -> dict[str, int]:
    return {"epoch": 0, "file": 1, "pos": pos, "event": 0, "row": 0, "landed": pos}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """Changes that tell these texts, at positions from 0 on. What is asked for is told as the position where it
    ends, or why not."""
    told = {"name": "s", "format": "canal_json", "topics": ["t"]}
    config = Config.model_validate({"lake": str(tmp_path), "sources": [told]})

    def holding(*texts: str, ddl: tuple[int, ...] = (), **of: Any) -> Callable[[str], int | str]:
        each = [
            {**TABLE, "gtid": gtid, "order_key": place(pos), "source_time": NOON + timedelta(seconds=pos), **of}
            for pos, gtid in enumerate(texts)
        ]
        add(tmp_path, tables.CHANGELOG, *({"op": "insert", **e} for p, e in enumerate(each) if p not in ddl))
        add(tmp_path, tables.SCHEMA_HISTORY, *({"kind": "ddl", **e} for p, e in enumerate(each) if p in ddl))

        def asked(given: str) -> int | str:
            try:
                found = moments.parse(config, "s", given, "TIME|GTID|CUT", gtids=True)
            except NotReadable as e:
                return e.problem
            assert found.gtid == given and found.place is not None
            assert found.time == NOON + timedelta(seconds=found.place[2])
            return found.place[2] if found.whole else f"not whole at {found.place[2]}"

        return asked

    return holding


def test_a_transaction_is_the_one_that_brings_its_number(lake: Lake) -> None:
    end = lake(f"{A}:1-76", f"{A}:1-77", f"{A}:1-77", f"{A}:1-78")
    assert end(f"{A}:76") == 0
    assert end(f"{A.upper()}:77") == 2
    assert end(f"{A}:78") == "not whole at 3", "more of it may come"
    assert end(f"{A.upper()}:79") == f"has no change of a transaction {A.upper()}:79"
    assert "before the first change in changelog" in str(end(f"{A}:75"))


def test_of_one_that_a_filter_leaves_out_the_state_is_that_before_it(lake: Lake) -> None:
    end = lake(f"{A}:1-70", f"{A}:1-75", f"{A}:1-78", f"{A}:1-79")
    assert [end(f"{A}:{n}") for n in (71, 74, 75, 76, 77, 78)] == [0, 0, 1, 1, 1, 2]


def test_statements_have_transactions_too(lake: Lake) -> None:
    end = lake(f"{A}:1-5", f"{A}:1-6", f"{A}:1-7", f"{A}:1-8", ddl=(1,))
    assert [end(f"{A}:{n}") for n in (5, 6, 7)] == [0, 1, 2]


def test_of_several_servers_the_one_that_changed_is_its_own(lake: Lake) -> None:
    end = lake(f"{A}:1-5,{B}:1-3", f"{A}:1-5,{B}:1-4", f"{A}:1-6,{B}:1-4", f"{A}:1-8,{B}:1-6", f"{A}:1-9,{B}:1-6")
    assert [end(f"{B}:4"), end(f"{A}:6"), end(f"{A}:7"), end(f"{B}:5"), str(end(f"{A}:9"))[-1:]] == [1, 2, 2, 2, "4"]
    for own in (f"{A}:8", f"{B}:6"):
        assert "its changes can't be told from theirs" in str(end(own))


def test_tags_and_domains(lake: Lake) -> None:
    end = lake(f"{A}:1-5", f"{A}:1-5:tag:1", f"{A}:1-6:tag:1", f"{A}:1-6:tag:1-2")
    assert [end(f"{A}:tag:1"), end(f"{A}:6"), str(end(f"{A}:TAG:2"))[-1:]] == [1, 2, "3"]
    assert "no change" in str(end(f"{A}:other:1"))


def test_mariadbs_sets(lake: Lake) -> None:
    end = lake("0-1-5,1-2-7", "0-1-6,1-2-7", "0-1-6,1-2-9", "0-1-7,1-2-9")
    assert [end("0-1-6"), end("1-2-8"), end("1-2-9")] == [1, 1, 2]
    assert "no change" in str(end("0-3-6")), "another server's"


def test_a_number_that_comes_later_than_higher_ones(lake: Lake) -> None:
    """A replica that applies in parallel has its own order."""
    end = lake(f"{A}:1-5", f"{A}:1-5:7", f"{A}:1-7", f"{A}:1-8")
    assert [end(f"{A}:7"), end(f"{A}:6")] == [1, 2]


@pytest.mark.parametrize("sets", [True, False])
def test_a_set_ends_with_the_last_of_it(lake: Lake, sets: bool) -> None:
    log = [(A, 5), (A, 6), (B, 1), (B, 2), (A, 9), (A, 10)]
    texts = [f"{name}:{n}" for name, n in log]
    if sets:
        texts = [f"{A}:1-5", f"{A}:1-6", f"{A}:1-6,{B}:1", f"{A}:1-6,{B}:1-2", f"{A}:1-9,{B}:1-2", f"{A}:1-10,{B}:1-2"]
    end = lake(*texts)
    assert [end(f"{A}:1-5"), end(f"{A}:1-6"), end(f"{A}:1-6,\n{B}:1"), end(f"{B}:1-2,{A}:1-6")] == [0, 1, 2, 3]
    assert [end(f"{A}:1-8,{B}:1-2"), end(f"{A}:1-9,{B}:1-2")] == [3, 4]
    assert end(f"{A}:1-99,{B}:1-2") == "not whole at 5", "what else is in it may come"
    assert "is no moment of its log" in str(end(f"{A}:1-10,{B}:1")), "there is none with so few of B"
    assert "no change of a transaction in" in str(end(f"{B}:7-9"))


def test_a_set_that_lacks_what_others_came_after(lake: Lake) -> None:
    end = lake(f"{A}:1-5,{B}:1", f"{A}:1-6,{B}:1", f"{A}:1-6,{B}:1-2")
    assert f"{B}:2 hadn't come when others had" in str(end(f"{A}:1-5,{B}:1-2"))


def test_rows_of_a_load_tell_how_far_its_view_was(lake: Lake) -> None:
    end = lake(f"{A}:7", f"{A}:9", f"{A}:10")
    lake(f"{A}:1-8", op="read")
    lake(f"{A}:1-8", topic=LOADED)
    assert end(f"{A}:9") == 1
    assert "no change of a transaction" in str(end(f"{A}:8"))


def test_what_is_neither_is_refused(lake: Lake) -> None:
    for text in ("what", f"{A}:", f"{A}:1-", f"{A}", "0-1", "1-2-3-4"):
        with pytest.raises(ConfigError):
            lake()(text)
