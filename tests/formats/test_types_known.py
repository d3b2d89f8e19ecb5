"""Every value of every MySQL type where messages tell no types, or poor ones, and the source's DDL or a file does."""

import json
import re
from functools import cache
from typing import NamedTuple

import msgspec
import pytest

from cdc_platform.feeds.canal_json import CanalJsonEncoder
from cdc_platform.feeds.dataworks import DataworksEncoder
from cdc_platform.feeds.debezium import DebeziumEncoder
from cdc_platform.formats import FORMATS
from cdc_platform.mysql.types import parse_type
from tests.formats.contexts import decode_with_context
from tests.formats.types_matrix import KINDS
from tests.formats.types_wire import FEEDS, batch_of, created, inserted, records, table_of


class BareTypes(CanalJsonEncoder):
    """canal_json whose types have no lengths, digits and labels, as TiCDC's had; `told` False: none at all."""

    def __init__(self, prefix, *, told=True):
        super().__init__(prefix)
        self._told = told

    def encode(self, transactions):
        for record in super().encode(transactions):
            message = json.loads(record.value)
            if message["mysqlType"]:
                types = {n: re.sub(r"\(.*\)", "", t) for n, t in message["mysqlType"].items()}
                message["mysqlType"] = types if self._told else None
            yield record._replace(value=json.dumps(message).encode())


class DatabaseAsSchema(DataworksEncoder):
    """dataworks whose rows tell MySQL's database a second time, as `schemaName`; its statements don't."""

    def encode(self, transactions):
        for record in super().encode(transactions):
            message = json.loads(record.value)
            if message["schema"]["dataColumn"]:
                source = message["schema"]["source"]
                source["schemaName"] = source["dbName"]
            yield record._replace(value=json.dumps(message).encode())


class Way(NamedTuple):
    """`feed`: whose limits hold; `encoder`: of its messages (None: the feed's own); `told`: where types come from."""

    feed: str
    encoder: object
    told: str


def bare():
    return DebeziumEncoder("t", schemas=False)


WAYS = {
    "debezium without schemas, tableChanges": Way("debezium", bare, "changes"),
    "debezium without schemas, statements": Way("debezium", bare, "statements"),
    "debezium without schemas, schema_file": Way("debezium", bare, "file"),
    "debezium with schemas, tableChanges": Way("debezium", lambda: DebeziumEncoder("t"), "changes"),
    "dataworks, statements": Way("dataworks", lambda: DataworksEncoder("t"), "changes"),
    "dataworks, statements, schemaName": Way("dataworks", lambda: DatabaseAsSchema("t"), "changes"),
    "dataworks, schema_file": Way("dataworks", lambda: DataworksEncoder("t"), "file"),
    "canal_json whose mysqlType is bare": Way("canal_json", lambda: BareTypes("t"), "changes"),
    "canal_json without mysqlType": Way("canal_json", lambda: BareTypes("t", told=False), "changes"),
}


def statements(way):
    """Messages of the CREATE TABLE of all tables, as the feed's tool sends them."""
    encoder = way.encoder()
    for number in range(len(KINDS)):
        for record in encoder.encode([created(number)]):
            if record.value and b"CREATE TABLE" in record.value:
                yield record.key, without_changes(record.value) if way.told == "statements" else record.value


def without_changes(value):
    message = json.loads(value)
    message["tableChanges"] = None
    return json.dumps(message).encode()


def source_of(kind, i):
    return kind.values[i].source if i < len(kind.values) else None


def told(feed, number):
    kind = KINDS[number]
    values = {i: FEEDS[feed].told(kind, v).value for i, v in enumerate(kind.values)}
    return {**{i: v.text for i, v in values.items() if v is not None}, len(kind.values): None}


@pytest.fixture(scope="module")
def schema_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("known") / "schema.sql"
    path.write_text("USE types;\n" + "".join(f"{table_of(n).ddl};\n" for n in range(len(KINDS))))
    return str(path)


@cache
def decoded(name, schema_file):
    way = WAYS[name]
    format_ = FORMATS[FEEDS[way.feed].format]
    messages = [] if way.told == "file" else list(statements(way))
    for number, kind in enumerate(KINDS):
        for i in told(way.feed, number):
            if way.encoder is None:
                messages += records(way.feed, number, i, source_of(kind, i))
            else:
                sent = way.encoder().encode([inserted(table_of(number), i, source_of(kind, i))])
                messages += [(r.key, r.value) for r in sent]
    options = format_.options(**({"schema_file": schema_file} if way.told == "file" else {}))
    events = decode_with_context(format_, batch_of(messages), options).to_pylist()
    rows = {}
    types = {}
    for event in events:
        if event["kind"] == "row":
            rows.setdefault(event["table"], {})[int(dict(event["after"])["id"])] = dict(event["after"])["c"]
        elif event["kind"] == "schema":
            types[event["table"]] = {c["name"]: c["type"] for c in msgspec.json.decode(event["columns"])}["c"]
    return rows, types, [e["reason"] for e in events if e["kind"] == "error"]


@pytest.mark.parametrize("way", WAYS)
def test_every_value_is_read(way, schema_file):
    assert decoded(way, schema_file)[2] == []


@pytest.mark.parametrize("number", range(len(KINDS)), ids=[k.name for k in KINDS])
@pytest.mark.parametrize("way", WAYS)
def test_what_the_source_holds_is_read_as_its_type(way, number, schema_file):
    rows, types, _ = decoded(way, schema_file)
    kind, table = KINDS[number], f"t{number}"
    got = rows[table]
    if kind.base == "timestamp":
        got = {i: text[:19] if text and text.startswith("0000") else text for i, text in got.items()}
    assert got == told(WAYS[way].feed, number)
    assert parse_type(types[table]).spark == kind.spark
