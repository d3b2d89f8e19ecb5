"""What one table is left for by a repair of several: without Spark and servers."""

from types import SimpleNamespace
from typing import Any

import pytest

from cdc_platform.errors import ConfigError
from cdc_platform.loading import repair
from cdc_platform.loading.errors import LoadRefused
from cdc_platform.reconcile.columns import Pairing
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
