"""What a feed can't tell is declared with its format, and said only of columns that it concerns."""

import json

import pytest

from cdc_platform.formats import FORMATS
from cdc_platform.formats.limits import limits_of
from tests.formats.json_fixtures import messages
from tests.formats.types_matrix import KINDS
from tests.formats.types_wire import FEEDS


def told(format_name: str, *types: str, writers: tuple[str, ...] = (), **options: object) -> dict[str, list[str]]:
    columns = json.dumps([{"name": f"c{i}", "type": t, "key": False} for i, t in enumerate(types)])
    return limits_of(FORMATS[format_name], options, columns, writers)


@pytest.mark.parametrize("feed", FEEDS)
def test_every_value_that_arrives_as_another_one_is_declared(feed: str) -> None:
    described = FEEDS[feed]
    for kind in KINDS:
        lost = {t.why for v in kind.values if (t := described.told(kind, v)).why and t.value is not None}
        if lost:
            found = told(described.format, kind.type, writers=(feed,), **described.options)
            assert len(found.get("c0", [])) >= len(lost), f"{feed} {kind.type}: {lost}"


TYPES = ("timestamp(6)", "datetime", "decimal(9,2)", "int", "bit(9)", "nonsense")


@pytest.mark.parametrize(
    ("format_name", "writers", "options", "expected"),
    [
        ("tencent_dts", (), {}, set()),
        ("canal", (), {}, {"c0"}),
        ("canal", (), {"time_zone": "UTC"}, set()),
        ("canal_json", (), {}, {"c0"}),
        ("tdsql", (), {}, {"c0"}),
        ("tdsql", (), {"time_zone": "Asia/Shanghai"}, set()),
        ("dataworks", (), {"time_zone": "UTC"}, {"c0", "c1"}),
        ("debezium", (), {}, {"c0", "c1"}),
        ("debezium", ("dtle",), {}, {"c0", "c1", "c2", "c4"}),
    ],
)
def test_limits_stand_where_a_type_has_them_and_no_option_settles_them(
    format_name: str, writers: tuple[str, ...], options: dict[str, str], expected: set[str]
) -> None:
    assert set(told(format_name, *TYPES, writers=writers, **options)) == expected


def test_an_option_settles_just_its_limit() -> None:
    open_ = told("dataworks", "datetime")["c0"]
    settled = told("dataworks", "datetime", time_zone="Asia/Shanghai")["c0"]
    assert [t for t in open_ if t not in settled] == [t for t in open_ if "time_zone" in t] != []


def test_options_that_settle_limits_are_options_of_the_format() -> None:
    for f in FORMATS.values():
        assert {limit.unless for limit in f.limits if limit.unless} <= set(f.options.model_fields), f.name


def stated(fields: list[dict], options: dict[str, object] | None = None, **source: object) -> dict[str, list[str]]:
    """Limits of the columns that a message of Debezium states. fields: beside `id`, of its schema."""
    told = [{"type": "int32", "optional": False, "field": "id"}, *fields]
    schema = {"type": "struct", "fields": [{"type": "struct", "fields": told, "field": n} for n in ("before", "after")]}
    schema["fields"] += [{"type": "string", "field": "op"}]
    where = {"db": "shop", "table": "orders", "server_id": 1, "file": "b.000001", "pos": 4, **source}
    payload = {"op": "c", "before": None, "after": {"id": 1, **{f["field"]: None for f in fields}}, "source": where}
    debezium = FORMATS["debezium"]
    batch = messages([json.dumps({"schema": schema, "payload": payload}).encode()])
    [event] = [
        e for e in debezium.decode(batch, debezium.options(**options or {})).to_pylist() if e["kind"] == "schema"
    ]
    writers = [dict(event["info"])["writer"]] if event["info"] else []
    return limits_of(debezium, options or {}, event["columns"], writers)


DEFAULTED = {"type": "string", "optional": True, "default": "new", "field": "v"}


def test_null_that_may_arrive_as_a_default_is_declared_of_such_columns_alone() -> None:
    others = [
        {"type": "string", "optional": False, "default": "new", "field": "kept"},
        {"type": "string", "optional": True, "default": None, "field": "none"},
        {"type": "boolean", "optional": True, "default": False, "field": "off"},
    ]
    found = stated([DEFAULTED, *others])
    assert set(found) == {"v", "off"} and "replace.null.with.default" in found["v"][0]
    assert stated([DEFAULTED], {"replace_null_with_default": False}) == {}
    assert stated([DEFAULTED], version="0.0.1") == {}, "dtle's encoder replaces nothing"


def test_a_time_that_a_converter_writes_without_its_zone_is_declared() -> None:
    converted = {"type": "string", "optional": True, "name": "a.converter.timestamp", "field": "at"}
    told_type: dict[str, object] = {"columns": {"shop.orders": {"at": "timestamp"}}}
    assert any("time_zone" in text for text in stated([converted], told_type)["at"])
    settled = stated([converted], {**told_type, "time_zone": "UTC"})
    assert not any("time_zone" in text for text in settled["at"])
