"""What the feed states of a table's columns, against what the server says of them."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from cdc_platform.changelog.schema_steps import schema_history
from cdc_platform.formats.kafka_connect.types import NULL_AS_DEFAULT
from cdc_platform.loading import table
from cdc_platform.loading.errors import LoadRefused
from cdc_platform.loading.key import Part
from cdc_platform.loading.table import _check_names, _column, table_of
from cdc_platform.tables import SCHEMA_HISTORY
from tests.rows import add

SOURCE: Any = SimpleNamespace(name="shop")


def column(name: str, type_text: str, *, key: bool = False, virtual: bool = False) -> Any:
    return SimpleNamespace(name=name, type_text=type_text, key=key, virtual=virtual)


@pytest.mark.parametrize(
    ("server", "feed"),
    [("double", "float"), ("float", "double"), ("timestamp(3)", "datetime(3)"), ("datetime", "timestamp")],
)
def test_types_whose_texts_only_look_alike_are_refused(server: str, feed: str) -> None:
    with pytest.raises(LoadRefused, match=r"is .* at the server, and the feed states"):
        _column(SOURCE, "shop.t", column("a", server), {"name": "a", "type": feed}, set())


@pytest.mark.parametrize("told", [None, {"name": "a", "type": "vector(3)"}])
def test_a_vector_is_refused(told: Any) -> None:
    with pytest.raises(LoadRefused, match=r"is vector\(3\), whose values a server tells as bytes"):
        _column(SOURCE, "shop.t", column("a", "vector(3)"), told, set())


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


@pytest.fixture
def asked(monkeypatch) -> Any:
    """`asked(server, feed)`: the table that is loaded, of columns of the server and of the feed's list."""

    def table_at(every: list[Any], stated: list[dict[str, Any]], format: str = "debezium") -> table.Table:
        monkeypatch.setattr(table, "there", lambda *_: every)
        monkeypatch.setattr(table, "_stated", lambda *_: stated)
        monkeypatch.setattr(table, "primary_key", lambda *_: (Part("id", "int"),))
        source: Any = SimpleNamespace(name="shop", format=format, tables=SimpleNamespace(keys={}))
        server: Any = SimpleNamespace(made=lambda *_: None, versioned=lambda *_: False)
        return table_of(SimpleNamespace(), source, server, "shop", "t")  # type: ignore[arg-type]

    return table_at


ID = {"name": "id", "type": "int", "key": True}
WITH_VIRTUAL = [column("id", "int", key=True), column("v", "int", virtual=True)]


def test_a_virtual_column_is_read_where_the_feed_carries_it(asked):
    read = asked(WITH_VIRTUAL, [ID, {"name": "V", "type": "int", "key": False}])
    assert ([c.name for c in read.columns], read.values.count("`v`")) == (["id", "V"], 1)
    read = asked(WITH_VIRTUAL, [ID])
    assert ([c.name for c in read.columns], read.values.count("`v`")) == (["id"], 0)


def test_before_the_feed_has_told_a_table_nothing_says_whether_it_carries_a_virtual_column(asked):
    with pytest.raises(LoadRefused, match="whether the feed carries v of") as refused:
        asked(WITH_VIRTUAL, [])
    assert refused.value.retriable
    assert [c.name for c in asked(WITH_VIRTUAL[:1], []).columns] == ["id"]


def test_what_the_feed_cant_tell_of_a_column_holds_behind_a_load(asked):
    stated = [ID, {"name": "a", "type": "int", "key": False, "limits": [NULL_AS_DEFAULT]}]
    read = asked([column("id", "int", key=True), column("a", "int(11)")], stated)
    assert [c.limits for c in read.columns] == [(), (NULL_AS_DEFAULT,)]


@pytest.mark.parametrize(
    ("server", "refused"),
    [("datetime", True), ("bit(3)", True), ("double", True), ("decimal(8,2)", False), ("enum('a')", False)],
)
def test_a_column_whose_type_the_feed_doesnt_tell_is_refused_where_its_text_is_another(asked, server, refused):
    every, told = [column("id", "int", key=True), column("a", server)], {"name": "a", "type": "longtext", "key": False}
    with pytest.raises(LoadRefused, match="doesn't tell the type of a of") if refused else nullcontext():
        assert asked(every, [ID, told]).columns[1].type == "longtext"


def test_messages_without_a_schema_write_decimals_as_bytes(asked):
    stated = [{**ID, "type": "longtext"}, {"name": "a", "type": "longtext", "key": False}]
    with pytest.raises(LoadRefused, match="doesn't tell the type of a of"):
        asked([column("id", "int", key=True), column("a", "decimal(8,2)")], stated)
    assert asked([column("id", "int", key=True), column("a", "varchar(9)")], stated).columns


@pytest.mark.parametrize(
    ("format", "stated", "landed"),
    [
        ("debezium", "time", ["10:00:00.5", "-10:20:00", "10:00:00", None]),
        ("canal", "time", ["10:00:00.500", "-10:20:00.000", "10:00:00", None]),  # the server's own text
        (
            "debezium",
            "time(3)",
            ["10:00:00.500", "-10:20:00.000", "10:00:00", None],
        ),  # the decoder takes the zeros away
    ],
)
def test_a_time_is_spelled_as_the_feed_does(asked, format, stated, landed):
    every = [column("id", "int", key=True), column("a", "time(3)")]
    read = asked(every, [ID, {"name": "a", "type": stated, "key": False}], format)
    rows = [("1", b"10:00:00.500"), ("2", "-10:20:00.000"), ("3", "10:00:00"), ("4", None)]
    assert [row[1] for row in read.landed(rows)] == landed


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([], False),
        ([("ddl", "t", "create table t (id int, ssn int)")], False),  # has all that the server has
        ([("message", "t", None)], True),
        ([("message", "other", None)], False),
        ([("message", "was", None), ("ddl", "was", "rename table was to t")], True),
    ],
)
def test_what_a_feed_leaves_out_its_messages_alone_tell(make_config, monkeypatch, rows, told):
    config = make_config([{"name": "s", "format": "debezium", "topics": ["s"]}])
    assert table.untold(config, config.source("s"), "shop", "t")
    add(config.lake, SCHEMA_HISTORY, {"source": "s"})
    columns = '[{"name": "id", "type": "int", "key": true}]'
    full = schema_history(
        [
            {"kind": kind, "db": "shop", "table": name, "ddl": ddl, "columns": None if ddl else columns}
            | {"order": (0, 1, at, 0, 0, at), "address": ("s", 0, at, 0)}
            for at, (kind, name, ddl) in enumerate(rows)
        ]
    )
    monkeypatch.setattr(table, "seen", lambda *_: SimpleNamespace(full=full))
    assert table.untold(config, config.source("s"), "shop", "t") != told
