"""What the quick way reads must be what the thorough way reads, and a message with any fault is not for it."""

import json
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_platform.formats import canal_json
from cdc_platform.formats.canal_json import CanalJsonOptions, decode
from cdc_platform.formats.canal_json.plain import Plain, read_plain
from tests.formats.canal_json.test_canal_json import SCENARIOS, load, messages, plain

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


def thorough(batch, options):
    with mock.patch.object(canal_json, "read_plain", lambda values: Plain([], list(range(len(values))))):
        return decode(batch, options)


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenarios_read_the_same_both_ways(name):
    batch, options = load(name)
    assert plain(decode(batch, options)) == plain(thorough(batch, options))


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
def test_what_canal_writes_goes_the_quick_way(change):
    value = text({**MESSAGE, **change}).encode()
    assert read_plain([value]).others == []
    assert plain(decode(messages([value]), CanalJsonOptions())) == plain(
        thorough(messages([value]), CanalJsonOptions())
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
def test_anything_else_goes_the_thorough_way(old, new):
    value = text(MESSAGE).replace(old, new, 1).encode()
    assert value != text(MESSAGE).encode()
    plain_one = text(MESSAGE).encode()
    found = read_plain([plain_one, value, None, value + b"x", plain_one])
    assert found.others == [1, 2, 3]
    assert [changes.at for _, changes in found.rows] == [[0, 0, 4, 4]]


PIECES = st.sampled_from(
    [*text(MESSAGE)[::9], '"', "\\", "{", "}", ",", ":", "null", " ", "1", '"id"', '\\":', "[", "é"]
)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_any_change_of_the_text_reads_the_same_both_ways(data):
    whole = text({**MESSAGE, "type": data.draw(st.sampled_from(["INSERT", "UPDATE", "DELETE"]))})
    at = data.draw(st.integers(0, len(whole)))
    to = data.draw(st.integers(at, min(len(whole), at + 12)))
    changed = whole[:at] + "".join(data.draw(st.lists(PIECES, max_size=3))) + whole[to:]
    batch = messages([whole.encode(), changed.encode(), whole.encode()])
    assert plain(decode(batch, CanalJsonOptions())) == plain(thorough(batch, CanalJsonOptions()))
