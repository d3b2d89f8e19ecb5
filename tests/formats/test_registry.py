"""Every registered format describes itself, has its scenarios, and survives whatever bytes it gets."""

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from cdc_platform.formats import FORMATS
from cdc_platform.formats.contract import EVENT, KINDS, MESSAGE, PART
from tests.properties import examples

FIXTURES = Path(__file__).parents[1] / "fixtures"
GARBAGE = [
    b"",
    b"\x00",
    b"\xff" * 100,
    b"{",
    b"null",
    b"[]",
    b'"text"',
    b"{}",
    b'{"a": 1} trailing',
    b"\x0a\xff\xff\xff\xff\x7f",
    b"\x33" * 1_000_000,  # protobuf groups within groups
    b"<xml/>",
    bytes(range(256)),
]
DECODABLE_AS_NOTHING = {"error", "skip"}

each_format = pytest.mark.parametrize("name", FORMATS)


def batch(values: list[bytes | None]) -> pa.RecordBatch:
    rows = [{"topic": "t", "partition": 0, "offset": i, "value": v, "headers": []} for i, v in enumerate(values)]
    return pa.RecordBatch.from_pylist(rows, schema=MESSAGE)


@each_format
def test_a_format_describes_itself(name: str) -> None:
    format_ = FORMATS[name]
    assert format_.name == name
    assert format_.version.strip()
    assert format_.summary.strip()
    assert "\n" not in format_.summary
    assert (format_.decode.__doc__ or "").strip(), "the decoder says what it does"


@each_format
def test_every_option_is_documented_and_has_a_default(name: str) -> None:
    options = FORMATS[name].options
    assert [n for n, f in options.model_fields.items() if not (f.description or "").strip()] == []
    options()
    with pytest.raises(ValidationError):
        options.model_validate({"no_such_option": 1})
    assert options.model_validate_json(options().model_dump_json()) == options(), "options travel to executors as JSON"


@each_format
def test_every_format_has_scenarios_with_expected_rows(name: str) -> None:
    expected = sorted(p.name.removesuffix(".expected.json") for p in (FIXTURES / name).glob("*.expected.json"))
    told = sorted(
        p.name.removesuffix(".json") for p in (FIXTURES / name).glob("*.json") if not p.name.endswith(".expected.json")
    )
    assert len(expected) >= 10
    assert told == expected


@each_format
def test_garbage_becomes_errors_one_by_one(name: str) -> None:
    events = FORMATS[name].decode(batch([*GARBAGE, None]), FORMATS[name].options())
    events.validate(full=True)
    assert events.schema == EVENT
    kinds: dict[int, set[str]] = {}
    for e in events.to_pylist():
        kinds.setdefault(e["offset"], set()).add(e["kind"])
        assert (e["topic"], e["partition"]) == ("t", 0)
        assert (e["reason"] or "").strip()
    assert sorted(kinds) == list(range(len(GARBAGE) + 1)), "no message vanishes"
    assert all(k <= DECODABLE_AS_NOTHING for k in kinds.values())
    assert sum(k == {"error"} for k in kinds.values()) >= len(GARBAGE) - 3


@each_format
@examples(60)
@given(
    values=st.lists(
        st.none()
        | st.binary(max_size=60)
        | st.text(st.sampled_from('{}[]":,0e-.naptfblsyou \\'), max_size=40).map(str.encode),
        max_size=6,
    )
)
def test_no_bytes_raise_and_no_message_vanishes(name: str, values: list[bytes | None]) -> None:
    events = FORMATS[name].decode(batch(values), FORMATS[name].options())
    assert events.schema == EVENT
    assert set(events.column("offset").to_pylist()) == set(range(len(values)))
    assert set(events.column("kind").to_pylist()) <= set(KINDS)


@each_format
def test_no_messages_give_no_events(name: str) -> None:
    assert FORMATS[name].decode(batch([]), FORMATS[name].options()).num_rows == 0


@pytest.mark.parametrize("name", [n for n, f in FORMATS.items() if f.part])
def test_parts_are_told_row_by_row_whatever_the_bytes(name: str) -> None:
    part = FORMATS[name].part
    assert part is not None
    parts = part.parse(batch([*GARBAGE, None]))
    assert parts.schema == PART
    assert parts.num_rows == len(GARBAGE) + 1
    for p in parts.to_pylist():
        assert p["error"] or (p["total"] >= 1 and 0 <= p["index"] < p["total"]), "a place, or a reason why it has none"
