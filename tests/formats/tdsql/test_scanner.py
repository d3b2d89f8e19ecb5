"""What the scanner reads must be what exact reading reads, and a message with any fault is left over."""

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.formats.tdsql import FORMAT, TdsqlOptions, decode
from cdc_platform.formats.tdsql.literals import _quoted
from cdc_platform.formats.tdsql.scanner import Scanner
from cdc_platform.formats.tdsql.schemas import Schemas
from cdc_platform.formats.tdsql.sets import Emptied
from tests.formats.contexts import statement
from tests.formats.json_fixtures import exact, messages
from tests.properties import examples

MESSAGE = {
    "prefix": "p", "filename": "/data/bin/binlog.000007", "logtype": "mysqlbinlog", "eventtype": 31,
    "eventtypestr": "update", "db": "d", "table": "t", "localip": "", "localport": 0, "begintime": 1700000000,
    "gtid": "3e11fa47-71ca-11e1-9e33-c80aa9429562:5", "serverid": "1", "event_index": "4", "gtid_commitid": "",
    "gtid_flag2": "0", "where": ["1", "'a'", "NULL"], "field": ["1", "'q\":\\\\'", "-7"], "sub_event_index": "1",
    "sequence_num": "8", "orgoffset": 9,
}  # fmt: skip
TYPES = "id int primary key, t varchar(99), n int"
OPTIONS = [TdsqlOptions(), TdsqlOptions(order="gtid", lower_case_table_names=True, escapes="backslash")]


def text(message):
    return json.dumps(message, ensure_ascii=False, separators=(",", ":"))


def created(*statements):
    """The columns that some statements tell; the first stands before the messages, each other a message later."""
    return FORMAT.context.build(TdsqlOptions(), [statement("d", sql, 2 * i - 1) for i, sql in enumerate(statements)])


STEADY = created(f"create table t ({TYPES})")
CHANGING = created(f"create table t ({TYPES})", "alter table t add x int", "alter table t modify n bigint")


def scanned(told, values):
    """The scanner after some values, and which of them it left over."""
    options = TdsqlOptions(lower_case_table_names=0)
    schemas = Schemas(told, options, Emptied(told, None))
    scanner = Scanner(schemas, lambda at: ("c", 0, at), options)
    return scanner, scanner(values)


@pytest.mark.parametrize("told", [STEADY, CHANGING])
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"eventtypestr": "insert", "where": []},
        {"eventtypestr": "delete", "field": []},
        {"gtid": ""},
        {"gtid": "0-1-5", "begintime": 1},
        {"event_index": "", "filename": "none"},
        {"where": ["1"], "field": ["1"]},
        {"column": ["`id`", "`N`", "`t`"]},
        {"column": []},
        {"column": None},
        {"field": ["1", "'{\n\"k\": 1}'", ""]},
    ],
)
def test_what_tdsql_writes_is_scanned(told, change):
    values = [text({**MESSAGE, **change}).encode()] * 4
    assert scanned(told, values)[1] == []
    for options in OPTIONS:
        batch = messages(values)
        assert decode(batch, options, told).equals(exact(decode, batch, options, told))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"table":"t"', '"table":"t","table":"t"'),  # a name twice
        ('"where":[', '"where":["1","2","3"],"where":['),
        ('"table":"t"', '"table":"t","schema":"s"'),  # a field that TDSQL doesn't write
        ('"localport":0,', ""),
        ('"serverid":"1"', '"serverid":1'),
        ('"eventtype":31', '"eventtype":1e400'),
        ('"NULL"', "null"),  # a literal that is no text
        ('"-7"', "-7"),
        ('"-7"', '"-7\x00"'),
        ('"-7"', '"-7","8"'),  # more values in one image
        ('"where":["1",', '"where":['),
        ('"update"', '"insert"'),
        ('"update"', '"UPDATE"'),
        ('"update"', '"query"'),
        ('"begintime":1700000000', '"begintime":0'),
        ('"begintime":1700000000', '"begintime":-0'),
        ('"begintime":1700000000', '"begintime":253402300800'),
        ('"event_index":"4"', '"event_index":"4x"'),
        ('"sub_event_index":"1"', '"sub_event_index":1'),
        ('"db":"d"', '"db":""'),
        ('"db":"d","table":"t"', '"db":"SysDB","table":"StatusTableForHb"'),
        ('"table":"t"', '"table":"other"'),  # its columns aren't known
        ('"orgoffset":9', '"orgoffset":9,"column":["`id`"]'),
        ('"orgoffset":9', '"orgoffset":9,"column":["`id`","`t`","`no`"]'),
        ('"orgoffset":9', '"orgoffset":9,"column":[{"a":"b"},"`t`","`n`"]'),
        ('"serverid":"1"', '"serverid" :"1"'),
    ],
)
@pytest.mark.parametrize("told", [STEADY, CHANGING])
def test_anything_else_is_left_over(told, old, new):
    value, fine = text(MESSAGE).replace(old, new, 1).encode(), text(MESSAGE).encode()
    assert value != fine
    values = [fine, value, None, value + b"x", fine]
    scanner, others = scanned(told, values)
    assert others == [1, 2, 3]
    assert sorted(at for parts in scanner.rows.values() for part in parts for at in part.at) == [0, 4]
    for options in OPTIONS:
        batch = messages(values)
        assert decode(batch, options, told).equals(exact(decode, batch, options, told))


CONTROL = {k: v for k, v in MESSAGE.items() if k not in ("where", "field", "sub_event_index")}


@pytest.mark.parametrize(
    ("change", "quick"),
    [
        ({"eventtypestr": "gtid"}, True),
        ({"eventtypestr": "gtid", "gtid": "", "db": "", "table": ""}, True),
        ({"eventtypestr": "xid", "xid": "77"}, True),
        ({"eventtypestr": "xid", "xid": ""}, True),
        ({"eventtypestr": "query", "sql": "BEGIN"}, True),
        ({"eventtypestr": "query", "sql": "truncate table `E`.`t`"}, True),
        ({"eventtypestr": "query", "sql": "create table x (id int)", "db": ""}, True),
        ({"eventtypestr": "query", "sql": "insert into t values (1)"}, False),
        ({"eventtypestr": "query", "sql": " "}, False),
        ({"eventtypestr": "query"}, False),
        ({"eventtypestr": "query", "sql": "BEGIN", "xid": "1"}, False),
        ({"eventtypestr": "xid", "xid": 77}, False),
        ({"eventtypestr": "gtid", "event_index": "x"}, False),
        ({"eventtypestr": "gtid", "begintime": 0}, False),
    ],
)
def test_messages_without_rows_read_the_same_both_ways(change, quick):
    fine = text({**CONTROL, "eventtypestr": "gtid"}).encode()
    value = text({**CONTROL, **change}).encode()
    values = [fine, value, value.replace(b'"logtype"', b'"logtype":"x","logtype"'), text(MESSAGE).encode()]
    assert scanned(STEADY, values)[1] == ([2] if quick else [1, 2])
    for options in OPTIONS:
        batch = messages(values)
        assert decode(batch, options, STEADY).equals(exact(decode, batch, options, STEADY))


LITERALS = st.text(st.sampled_from(["'", "\\", "a", " ", "1", "\n", "é", "😀", "-"]), max_size=4)


@examples(200)
@given(st.lists(st.none() | LITERALS, max_size=9), st.integers(0, 3))
def test_quotes_are_seen_at_both_ends(texts, start):
    found = _quoted(pa.array(texts, pa.string()).slice(start))
    assert found.tolist() == [t is None or (len(t) > 1 and t[0] == t[-1] == "'") for t in texts[start:]]


PIECES = st.sampled_from(
    [*text(MESSAGE)[::9], '"', "\\", "{", "}", ",", ":", "null", " ", "1", '"db"', '\\":', "[", "é", "'", '"1",']
)


@examples(400)
@given(st.data())
def test_any_change_of_the_text_reads_the_same_both_ways(data):
    op, empty = data.draw(st.sampled_from([("insert", "where"), ("delete", "field"), ("update", "none")]))
    whole = text({k: [] if k == empty else v for k, v in {**MESSAGE, "eventtypestr": op}.items()})
    at = data.draw(st.integers(0, len(whole)))
    to = data.draw(st.integers(at, min(len(whole), at + 12)))
    changed = whole[:at] + "".join(data.draw(st.lists(PIECES, max_size=3))) + whole[to:]
    batch = messages([whole.encode(), changed.encode(), whole.encode(), whole.encode()])
    told, options = data.draw(st.sampled_from([STEADY, CHANGING])), data.draw(st.sampled_from(OPTIONS))
    assert decode(batch, options, told).equals(exact(decode, batch, options, told))
