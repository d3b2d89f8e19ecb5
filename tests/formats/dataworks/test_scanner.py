"""What the scanner reads must be what exact reading reads, and a message with any fault is left over."""

import json
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.formats.dataworks import DataworksOptions, decode
from cdc_platform.formats.dataworks.scanner import Scanner
from tests.formats.json_fixtures import exact, messages, readable
from tests.properties import examples

KINDS = {"id": "LONG", "t": "STRING", "p": "DOUBLE", "at": "DATE", "b": "BYTES", "ok": "BOOLEAN"}
ROW = {"id": 1, "t": 'q":\\ :', "p": "1.50", "at": 1590315269123, "b": "AP8=", "ok": True}
MESSAGE = {
    "schema": {
        "dataColumn": [{"name": n, "type": t} for n, t in KINDS.items()],
        "primaryKey": ["id"],
        "source": {"dbType": "MySQL", "dbName": "d", "tableName": "t"},
    },
    "payload": {
        "before": {"dataColumn": {**ROW, "t": None}},
        "after": {"dataColumn": ROW},
        "sequenceId": "1620457642589000001",
        "timestamp": {"eventTime": 1620458077000, "systemTime": 1620458077779, "checkpointTime": 1620458077000},
        "op": "UPDATE_AFTER",
        "ddl": None,
    },
    "version": "0.0.1",
}
OPTIONS = [
    DataworksOptions(),
    DataworksOptions(
        time_zone="America/Sao_Paulo",
        columns={"d.t": {"id": "bigint", "p": "decimal(9,2)", "at": "datetime", "b": "binary(3)", "t": "varchar(9)"}},
    ),
]


def changed(**payload):
    return {**MESSAGE, "payload": {**MESSAGE["payload"], **payload}}


def text(message):
    return json.dumps(message, ensure_ascii=False, separators=(",", ":"))


def value(**payload):
    return text(changed(**payload)).encode()


PLAIN = text(MESSAGE).encode()


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"op": "INSERT", "before": None},
        {"op": "DELETE", "after": None},
        {"op": "UPDATE_BEFOR", "after": None},
        {"op": "UPDATE_BEFORE", "after": None},
        {"before": None},
        {"op": "INSERT", "before": None, "sequenceId": "-1"},
        {"op": "INSERT", "before": None, "sequenceId": -1},
        {"sequenceId": 10**29 + 7},
        {"sequenceId": "9" * 36},
        {"scn": "1234567"},
        {"timestamp": {"eventTime": -1, "systemTime": -1, "checkpointTime": None}},
        {"after": {"dataColumn": dict(reversed(ROW.items()))}},
        {"after": {"dataColumn": {"id": 1}}},
        {"after": {"dataColumn": {**ROW, "zz": 1}}},
        {"after": {"dataColumn": {**ROW, "p": 7}}},
        {"after": {"dataColumn": {**ROW, "p": "1e3"}}},
        {"after": {"dataColumn": {**ROW, "id": None}}},
        {"after": {"dataColumn": {**ROW, "b": "AP8"}}},
    ],
)
def test_what_dataworks_writes_is_scanned(payload, options):
    batch = messages([value(**payload)] * 5)
    assert Scanner()(batch.column("value").to_pylist()) == []
    assert decode(batch, options).equals(exact(decode, batch, options))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"id":1', '"id":1,"id":1'),  # a name twice
        ('"id":1', '"id":1,"\\u0069d":1'),
        ('"op":', '"op":"INSERT","op":'),
        ('"dbName":"d"', '"dbName":"d","dbName":"d"'),
        ('"name":"id"', '"name":"id","name":"id"'),
        ('"version":', '"extra":1,"version":'),
        ('"version":"0.0.1"', '"version":1'),
        ('"ddl":null', '"ddl":{"text":"x"}'),
        ('"id":1', '"id":-0'),  # looks like 0 when it is parsed
        ('"id":1', '"id" :1'),
        ('"id":1', '"id":01'),
        ('"eventTime":1620458077000', '"eventTime":1e3'),
        ('"eventTime":1620458077000', '"eventTime":253402300800000'),
        ('"checkpointTime":1620458077000', '"checkpointTime":[1]'),
        (',"checkpointTime":1620458077000', ""),
        ('"1620457642589000001"', '"16204576425890000O1"'),
        ('"1620457642589000001"', '""'),
        ('"1620457642589000001"', "1.0"),
        ('"1620457642589000001"', "null"),
        ('"1620457642589000001"', '"-1"'),
        ('"1620457642589000001"', '"' + "1" * 37 + '"'),
        ('"UPDATE_AFTER"', '"INSERT"'),
        ('"UPDATE_AFTER"', '"update_after"'),
        ('"UPDATE_AFTER"', '"TRANSACTION_BEGIN"'),
        ('"dataColumn":{"id":1', '"dataColumn":{"id":\x00'),
        ('["id"]', '["nope"]'),
        ('["id"]', '["id",1]'),
        ('"dbName":"d"', '"dbName":""'),
        ('"dbName":"d"', '"dbName":{"a":"b"}'),
    ],
)
def test_anything_else_is_left_over(old, new):
    odd = text(MESSAGE).replace(old, new, 1).encode()
    assert odd != PLAIN
    values = [PLAIN, odd, None, odd + b"x", PLAIN]
    scanner = Scanner()
    assert scanner(values) == [1, 2, 3]
    assert [at for parts in scanner.rows.values() for part in parts for at in part.at] == [0, 4]
    assert decode(messages(values), OPTIONS[0]).equals(exact(decode, messages(values), OPTIONS[0]))


def test_a_second_half_that_lacks_a_column_is_left_over():
    half = value(before=None, after={"dataColumn": {"id": 1}})
    assert Scanner()([PLAIN, half]) == [1]
    assert readable(decode(messages([half]), OPTIONS[0]))[0]["reason"].endswith("lacks column 't'")


def test_what_a_schema_says_is_parsed_once():
    other = text({**MESSAGE, "schema": {**MESSAGE["schema"], "primaryKey": None}}).encode()
    with mock.patch("cdc_platform.formats.dataworks.scanner.read_json", wraps=json.loads) as parsed:
        scanner = Scanner()
        assert scanner([PLAIN, other, PLAIN, PLAIN, other]) == []
    assert parsed.call_count == 2
    assert [(group.key, parts[0].at) for group, parts in scanner.rows.items()] == [(("id",), [0, 2, 3]), ((), [1, 4])]


PIECES = st.sampled_from(
    [*text(MESSAGE)[::9], '"', "\\", "{", "}", ",", ":", "null", " ", "1", '"id"', '\\":', "[", "é", "-0"]
)


@examples(400)
@given(st.data())
def test_any_change_of_the_text_reads_the_same_both_ways(data):
    whole = text(changed(**data.draw(st.sampled_from([{}, {"before": None}, {"op": "DELETE", "after": None}]))))
    at = data.draw(st.integers(0, len(whole)))
    to = data.draw(st.integers(at, min(len(whole), at + 12)))
    odd = whole[:at] + "".join(data.draw(st.lists(PIECES, max_size=3))) + whole[to:]
    batch = messages([whole.encode(), odd.encode(), whole.encode()])
    assert decode(batch, OPTIONS[0]).equals(exact(decode, batch, OPTIONS[0]))


CELLS = {
    "id": st.integers(-(2**63), 2**64),
    "t": st.sampled_from(["", "a", 'q":\\', " :", "é", None]),
    "p": st.sampled_from(["0.10", "-0.00", "1e3", 7, 1.25, None, "x"]),
    "at": st.sampled_from([0, -1, 1590315269123, 1541300400000, None]) | st.integers(-(10**13), 10**13),
    "b": st.sampled_from(["", "AP8=", "AB==", "AA", None]),
    "ok": st.sampled_from([True, False, None, 1]),
}


@st.composite
def row_messages(draw):
    """Rows of a table or two, told in one order or another, some of them with a fault or without some columns."""
    key, rest = {"id": CELLS["id"]}, {n: cells for n, cells in CELLS.items() if n != "id"}
    row = st.fixed_dictionaries(CELLS) | st.fixed_dictionaries(key, optional=rest)
    before, after = draw(row), draw(row)
    op, images = draw(
        st.sampled_from(
            [("INSERT", (None, after)), ("DELETE", (before, None)), ("UPDATE_AFTER", (before, after)),
             ("UPDATE_AFTER", (None, after)), ("UPDATE_BEFOR", (before, None)), ("INSERT", (before, after))]
        )
    )  # fmt: skip
    before, after = (image and {"dataColumn": image} for image in images)
    number = draw(st.sampled_from(["5", 5, "-1", -1, "1" * 30, "x"]))
    message = changed(op=op, before=before, after=after, sequenceId=number)
    table = {**MESSAGE["schema"]["source"], "tableName": draw(st.sampled_from("ttu"))}
    return text({**message, "schema": {**MESSAGE["schema"], "source": table}}).encode()


@examples(200)
@given(st.lists(row_messages(), min_size=1, max_size=12), st.integers(1, 5), st.sampled_from(OPTIONS))
def test_whole_batches_come_out_the_same_in_every_way(values, at_a_time, options):
    batch = messages(values)
    with (
        mock.patch("cdc_platform.formats.json_scanner._CHUNK", at_a_time),
        mock.patch("cdc_platform.formats.dataworks.values._FEW", 0),
    ):
        found = decode(batch, options)
    with mock.patch("cdc_platform.formats.dataworks.values._FEW", 1000):
        assert found.equals(exact(decode, batch, options))


def test_plain_and_odd_messages_in_one_batch_give_what_each_gives_alone():
    odd = [value(extra=1, op="INSERT", before=None), value(op="DELETE", after=None, ddl={"text": "x"})]
    bad = [value(after={"dataColumn": {**ROW, "ok": 5}}), PLAIN[:-1]]
    batch = messages([*[PLAIN] * 10, odd[0], *[PLAIN] * 10, bad[0], odd[1], bad[1], *[PLAIN] * 10, None])
    alone = [e for i in range(len(batch)) for e in readable(decode(batch.slice(i, 1), OPTIONS[0]))]
    together = readable(decode(batch, OPTIONS[0]))
    assert [(e["offset"], at) for at, e in enumerate(together) if e["kind"] == "schema"] == [(0, 0)]
    assert [e for e in together if e["kind"] != "schema"] == [e for e in alone if e["kind"] != "schema"]
    assert [e["offset"] for e in together if e["kind"] == "error"] == [21, 23]
