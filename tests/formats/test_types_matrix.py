"""Every value of every MySQL type, as each vendor sends it → the format's decoder → canonical text, snapshot type."""

from functools import cache

import msgspec
import pytest

from cdc_platform.formats import FORMATS
from cdc_platform.mysql.types import FAMILIES, parse_type
from tests.formats.contexts import decode_with_context
from tests.formats.types_doc import DOC, TABLES, written
from tests.formats.types_matrix import KINDS
from tests.formats.types_wire import FEEDS, batch_of, creates, records


def told(feed, number):
    """Row number → what the feed tells of the value; the row after the last is NULL."""
    kind = KINDS[number]
    values = {i: FEEDS[feed].told(kind, v).value for i, v in enumerate(kind.values)}
    return {**{i: v.text for i, v in values.items() if v is not None}, len(kind.values): None}


@cache
def decoded(feed):
    """Table → row → (kind of event, text of `c`); and table → type text of `c`. One decoder call per feed."""
    messages = [(None, value) for value in creates()] if feed == "tdsql" else []
    for number, kind in enumerate(KINDS):
        for i in told(feed, number):
            source = kind.values[i].source if i < len(kind.values) else None
            messages += records(feed, number, i, source)
    format_ = FORMATS[FEEDS[feed].format]
    events = decode_with_context(format_, batch_of(messages), format_.options(**FEEDS[feed].options)).to_pylist()
    rows, types, errors = {}, {}, []
    for event in events:
        if event["kind"] == "row":
            after = dict(event["after"])
            rows.setdefault(event["table"], {})[int(after["id"])] = after["c"]
        elif event["kind"] == "schema":
            columns = {c["name"]: c["type"] for c in msgspec.json.decode(event["columns"])}
            types[event["table"]] = columns["c"]
        elif event["kind"] == "error":
            errors.append(event["reason"])
    return rows, types, errors


@pytest.mark.parametrize("feed", FEEDS)
def test_every_value_is_read(feed):
    assert decoded(feed)[2] == []


@pytest.mark.parametrize("number", range(len(KINDS)), ids=[k.name for k in KINDS])
@pytest.mark.parametrize("feed", FEEDS)
def test_canonical_text_is_what_the_source_holds(feed, number):
    rows, types, _ = decoded(feed)
    kind, table = KINDS[number], f"t{number}"
    got = rows[table]
    if kind.base == "timestamp":  # a zero stays as the source writes it, with its fraction or zone
        got = {i: text[:19] if text and text.startswith("0000") else text for i, text in got.items()}
    assert got == told(feed, number)
    assert parse_type(types[table]).spark == FEEDS[feed].types.get(kind.base, kind.spark)


@pytest.mark.parametrize("name", TABLES)
def test_the_document_has_what_is_tested(name):
    """On purpose no rewriting here: `python -m tests.formats.types_doc` does that."""
    assert written(name, DOC.read_text()).splitlines() == list(TABLES[name]())


def test_the_matrix_has_every_family_and_no_type_twice():
    assert {parse_type(k.type).family for k in KINDS} == set(FAMILIES.values()) - {"boolean"}
    assert len({k.name for k in KINDS}) == len(KINDS)
