"""What a feed can't tell is declared with its format, and said only of columns that it concerns."""

import json

import pytest

from cdc_platform.formats import FORMATS
from cdc_platform.formats.limits import limits_of
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
