"""What the scanner reads must be what exact reading reads, and a message with any fault is left over."""

import json
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.formats import canal_json
from cdc_platform.formats.canal_json import CanalJsonOptions, decode
from cdc_platform.formats.canal_json.scanner import Scanner
from tests.formats.json_fixtures import exact, messages, readable
from tests.properties import examples

MESSAGE = {
    "data": [{"id": "1", "t": "a", "n": None}, {"id": "2", "t": 'q":\\', "n": "-7"}],
    "database": "d",
    "es": 1700000000000,
    "id": 3,
    "isDdl": False,
    "mysqlType": {"id": "bigint(20)", "t": "varchar(9)", "n": "int"},
    "old": [{"t": "b"}, {}],
    "pkNames": ["id"],
    "sql": "",
    "sqlType": {"id": -5, "t": 12, "n": 4},
    "table": "t",
    "ts": 1700000000100,
    "type": "UPDATE",
}


def text(message):
    return json.dumps(message, ensure_ascii=False, separators=(",", ":"))


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"gtid": "g:1"},
        {"type": "INSERT", "old": None},
        {"type": "DELETE", "old": None},
        {"old": None},
        {"mysqlType": None},
        {"pkNames": None},
        {"data": [{"id": "1", "t": '{\n"k": 1}', "n": None}], "old": [{"n": "4"}]},
    ],
)
def test_what_canal_writes_is_scanned(change):
    value = text({**MESSAGE, **change}).encode()
    assert Scanner()([value]) == []
    assert readable(decode(messages([value]), CanalJsonOptions())) == readable(
        exact(decode, messages([value]), CanalJsonOptions())
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"id":"1"', '"id":"1","id":"1"'),  # a name twice
        ('"table":"t"', '"table":"t","table":"t"'),
        ('"table":"t"', '"table":"t","schema":"s"'),  # a field that canal doesn't write
        ('"ts":1700000000100', '"ts":1700000000100,"_tidb":{"onlyHandleKey":true}'),
        ('"n":"int"', '"n":{"a":"b"}'),
        ('"n":"int"', '"n":7'),
        ('"n":4', '"n":4,"n":4'),
        ('"id":"1"', '"id":1.10'),  # a cell that is no text
        ('"id":"1"', '"id":"1\x00'),
        ('"t":"b"', '"T":"b"'),  # old spells a name otherwise
        ('{"t":"b"},{}', '{"t":"b"}'),  # old lacks a row
        ('{"t":"b"},{}', '{"t":"b"},null'),
        ('"UPDATE"', '"update"'),
        ('"UPDATE"', '"QUERY"'),
        ('"es":1700000000000', '"es":999999999999999999'),
        ('"es":1700000000000', '"es":"1700000000000"'),
        ('"es":1700000000000', '"es":-0'),
        ('["id"]', '["id","id"]'),
        ('["id"]', '"id"'),
        ('"database":"d"', '"database":""'),
        ('"sql":""', '"sql" :""'),
        ('"isDdl":false,', ""),
    ],
)
def test_anything_else_is_left_over(old, new):
    value = text(MESSAGE).replace(old, new, 1).encode()
    assert value != text(MESSAGE).encode()
    plain_one = text(MESSAGE).encode()
    scanner = Scanner()
    assert scanner([plain_one, value, None, value + b"x", plain_one]) == [1, 2, 3]
    assert [sheet.fields.at for [sheet] in scanner.rows.values()] == [[0, 0, 4, 4]]


PIECES = st.sampled_from(
    [*text(MESSAGE)[::9], '"', "\\", "{", "}", ",", ":", "null", " ", "1", '"id"', '\\":', "[", "é"]
)


@examples(400)
@given(st.data())
def test_any_change_of_the_text_reads_the_same_both_ways(data):
    whole = text({**MESSAGE, "type": data.draw(st.sampled_from(["INSERT", "UPDATE", "DELETE"]))})
    at = data.draw(st.integers(0, len(whole)))
    to = data.draw(st.integers(at, min(len(whole), at + 12)))
    changed = whole[:at] + "".join(data.draw(st.lists(PIECES, max_size=3))) + whole[to:]
    batch = messages([whole.encode(), changed.encode(), whole.encode()])
    assert readable(decode(batch, CanalJsonOptions())) == readable(exact(decode, batch, CanalJsonOptions()))


TYPES = {
    "id": "bigint(20)", "t": "varchar(9)", "n": "int", "d": "decimal(9,2)", "at": "timestamp", "e": "enum('a','b')",
    "b": "blob", "u": "bigint unsigned",
}  # fmt: skip
TEXTS = {
    "id": ["1", "2", "3", "007"],
    "t": ["", "a", 'q":\\', "é", " :"],
    "n": ["5", "-7"],
    "d": ["1.50", "-0.1"],
    "at": ["2021-05-17 07:22:42", "2021-05-17 07:22:42.100"],
    "e": ["1", "2"],
    "b": ["abc", "\u00ff"],
    "u": ["1", "18446744073709551615"],
}
UNREADABLE = {"id": None, "n": "x", "d": "1e3", "at": "soon", "e": "3", "b": "€", "u": "-1"}
TABLES = [["id", "t", "n"], ["t", "id"], ["id", "at", "e", "b"], ["id", "d", "u"], list(TYPES)]
FAULTS = [*[None] * 12, "unreadable", "native", "absent", "old", "short", "type", "key"]


@st.composite
def row_messages(draw):
    """Messages of a table or two with some columns; in few of them a fault, or a text that can't be read."""
    names = draw(st.sampled_from(TABLES))
    cells = {name: st.sampled_from(TEXTS[name]) | (st.nothing() if name == "id" else st.none()) for name in names}
    count = draw(st.sampled_from([1, 1, 1, 2, 3]))
    data = draw(st.lists(st.fixed_dictionaries(cells), min_size=count, max_size=count))
    kind, old = draw(st.sampled_from(["INSERT", "UPDATE", "UPDATE", "DELETE", "INIT"])), None
    if kind == "UPDATE":
        some = st.fixed_dictionaries({}, optional=cells)
        old = draw(st.none() | st.lists(some, min_size=count, max_size=count))
    fault, name = draw(st.sampled_from(FAULTS)), draw(st.sampled_from(names))
    if fault == "unreadable":
        data[-1][name] = UNREADABLE.get(name, "x")
    elif fault == "native":
        data[0][name] = 5
    elif fault == "absent":
        del data[0][name]
    elif fault == "old" and old:
        old[0]["zz"] = "1"
    elif fault == "short" and old:
        old.pop()
    told = {
        "mysqlType": {n: 5 if fault == "type" and n == name else TYPES[n] for n in names},
        "sqlType": {n: draw(st.sampled_from([3, -5])) if n == "u" else 1 for n in names},  # as u's values are large
        "pkNames": ["nope"] if fault == "key" else ["id"],
    }
    return {**MESSAGE, **told, "data": data, "old": old, "type": kind, "table": draw(st.sampled_from("tts"))}


@examples(200)
@given(st.lists(row_messages(), min_size=1, max_size=12), st.integers(1, 5))
def test_whole_batches_come_out_the_same_in_every_way(told, at_a_time):
    batch, options = messages([text(m).encode() for m in told]), CanalJsonOptions()
    with mock.patch("cdc_platform.formats.json_scanner._CHUNK", at_a_time):
        found = decode(batch, options)
        with mock.patch.object(canal_json, "convert_sheet", lambda *_: None):
            row_by_row = decode(batch, options)
    assert found.equals(exact(decode, batch, options))
    assert found.equals(row_by_row)


def test_rows_without_a_fault_are_converted_at_once():
    other = {**MESSAGE, "data": [{"id": "9", "t": None, "n": "1"}], "type": "DELETE", "old": None, "gtid": "g"}
    batch = messages([text(m).encode() for m in (MESSAGE, other)])
    with mock.patch.object(canal_json, "convert", side_effect=AssertionError):
        found = decode(batch, CanalJsonOptions())
    assert found.equals(exact(decode, batch, CanalJsonOptions()))


def test_a_sheet_gives_its_rows_back():
    scanner = Scanner()
    assert scanner([text(MESSAGE).encode(), text({**MESSAGE, "old": None}).encode()]) == []
    [[sheet]] = scanner.rows.values()
    changes = sheet.changes()
    assert changes.data == MESSAGE["data"] * 2
    assert changes.old == [*MESSAGE["old"], None, None]
    assert (changes.at, changes.place, changes.op) == ([0, 0, 1, 1], [0, 1, 0, 1], ["update"] * 4)
