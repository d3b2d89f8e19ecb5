"""What the feed states of a table's columns, against what the server says of them."""

from types import SimpleNamespace
from typing import Any

import pytest

from cdc_platform.loading.errors import LoadRefused
from cdc_platform.loading.table import _check_names, _column

SOURCE: Any = SimpleNamespace(name="shop")


def column(name: str, type_text: str, *, virtual: bool = False) -> Any:
    return SimpleNamespace(name=name, type_text=type_text, virtual=virtual)


@pytest.mark.parametrize(
    ("server", "feed"),
    [("double", "float"), ("float", "double"), ("timestamp(3)", "datetime(3)"), ("datetime", "timestamp")],
)
def test_types_whose_texts_only_look_alike_are_refused(server: str, feed: str) -> None:
    with pytest.raises(LoadRefused, match=r"is .* at the server, and the feed states"):
        _column(SOURCE, "shop.t", column("a", server), {"name": "a", "type": feed}, set())


@pytest.mark.parametrize("server", ["int(11)", "mediumint", "varchar(9)"])
def test_what_the_feed_calls_a_type_holds_for_the_rows(server: str) -> None:
    told = {"name": "a", "type": {"mediumint": "int"}.get(server, server)}
    assert _column(SOURCE, "shop.t", column("a", server), told, {"a"}).type == told["type"]


@pytest.mark.parametrize(
    ("feed", "why"), [(["id"], "the feed doesn't tell column a"), (["id", "a", "b"], "the server tells no column b")]
)
def test_columns_of_one_side_alone_are_refused(feed: list[str], why: str) -> None:
    every = [column("ID", "int"), column("a", "int"), column("made", "int", virtual=True)]
    with pytest.raises(LoadRefused, match=why) as refused:
        _check_names(SOURCE, "shop.t", feed, every)
    assert refused.value.retriable
    _check_names(SOURCE, "shop.t", ["id", "a"], every)
    _check_names(SOURCE, "shop.t", ["id", "a", "made"], every)
