"""The encoder's JSON read back with the json module, by rules written here once more."""

import base64
import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import numpy as np
import pytest

from cdc_platform.feeds.debezium import DebeziumEncoder
from cdc_platform.feeds.shop import ITEMS, ORDERS, TABLES
from cdc_platform.feeds.values import java_number
from cdc_platform.feeds.workload import Ddl, TableChange, Transaction, Workload


@pytest.fixture(scope="module")
def shop():
    return Workload(seed=13, transactions=80)


@pytest.fixture(scope="module")
def records(shop):
    return list(DebeziumEncoder("p").encode(shop.transactions))


def value(field, raw):
    """A payload value → Python value, by its schema field."""
    name = field.get("name", field["type"]).rsplit(".", 1)[-1]
    if raw is None:
        assert field["optional"]
        return None
    if name == "Decimal":
        number = Decimal(int.from_bytes(base64.b64decode(raw), "big", signed=True))
        scale = int(field["parameters"]["scale"])
        shifted = Decimal((number.as_tuple().sign, number.as_tuple().digits, -scale))
        return shifted if scale else int(shifted)
    if name == "float":
        return float(np.float32(raw))
    epoch = datetime(1970, 1, 1)
    read = {
        "Bits": lambda v: int.from_bytes(base64.b64decode(v), "little"),
        "bytes": base64.b64decode,
        "Date": lambda v: date(1970, 1, 1) + timedelta(days=v),
        "MicroTime": lambda v: timedelta(microseconds=v),
        "Timestamp": lambda v: epoch + timedelta(milliseconds=v),
        "MicroTimestamp": lambda v: epoch + timedelta(microseconds=v),
        "ZonedTimestamp": lambda v: datetime.fromisoformat(v.removesuffix("Z")).replace(tzinfo=UTC),
    }
    return read.get(name, lambda v: v)(raw)


def row(schema, payload):
    assert [f["field"] for f in schema["fields"]] == list(payload)
    return {f["field"]: value(f, payload[f["field"]]) for f in schema["fields"]}


def replay(records):
    tables, deleted = {f"p.{name}": {} for name in TABLES}, None
    for record in records:
        if record.topic not in tables:
            continue
        key = json.loads(record.key)
        key = tuple(row(key["schema"], key["payload"]).values())
        live = tables[record.topic]
        if record.value is None:
            assert deleted == (record.topic, key)
            continue
        message = json.loads(record.value)
        fields = {f["field"]: f for f in message["schema"]["fields"]}
        before, after = (
            None if message["payload"][side] is None else row(fields[side], message["payload"][side])
            for side in ("before", "after")
        )
        op = message["payload"]["op"]
        assert (before is not None, after is not None) == {
            "c": (False, True),
            "u": (True, True),
            "d": (True, False),
        }[op]
        if before is not None:
            assert live.pop(key) == before
        if after is not None:
            assert key not in live
            live[key] = after
        deleted = (record.topic, key) if op == "d" else None
    return {name.removeprefix("p."): rows for name, rows in tables.items()}


def test_messages_hold_the_truth(shop, records):
    assert replay(records) == shop.truth


def test_every_delete_is_followed_by_its_tombstone(records):
    deletes = [i for i, r in enumerate(records) if r.value and r.topic.startswith("p.") and b'"op":"d"' in r.value]
    assert deletes
    assert all(records[i + 1].value is None and records[i + 1].key == records[i].key for i in deletes)


def test_changed_key_is_a_delete_and_a_create(records):
    new = [i for i, r in enumerate(records) if r.value and dict(r.headers).get("__debezium.newkey")]
    assert new
    for i in new:
        old, _, made = records[i : i + 3]
        assert json.loads(old.value)["payload"]["op"] == "d"
        assert json.loads(made.value)["payload"]["op"] == "c"
        assert "__debezium.oldkey" in dict(made.headers) and made.key != old.key


def test_source_block_tells_the_position(shop, records):
    told = [
        (s["gtid"], s["file"], s["pos"], s["row"])
        for r in records
        if r.topic.startswith("p.") and r.value and (m := json.loads(r.value)["payload"])["op"] != "d"
        for s in [m["source"]]
    ]
    have = [(tx.gtid, tx.file, c.pos, c.row) for tx in shop.transactions for c in tx.events if c.op != "delete"]
    assert told == have


def test_other_topics(records):
    beats = [r for r in records if r.topic == "__debezium-heartbeat.p"]
    assert beats and set(json.loads(beats[-1].value)["payload"]) == {"ts_ms"}
    changes = [json.loads(r.value)["payload"] for r in records if r.topic == "p"]
    assert [c["ddl"] for c in changes] == [t.ddl for t in TABLES.values()]
    customers = changes[0]["tableChanges"][0]["table"]
    assert customers["primaryKeyColumnNames"] == ["id"]
    level = next(c for c in customers["columns"] if c["name"] == "level")
    assert level["enumValues"] == ["'new'", "'regular'", "'it''s gold'"]


def test_without_schemas_the_payload_stands_alone():
    shop = Workload(1, 3)
    record = next(r for r in DebeziumEncoder("p", schemas=False).encode(shop.transactions) if r.topic != "p")
    assert set(json.loads(record.key)) == {"id"} and json.loads(record.value)["op"] == "c"


@pytest.mark.parametrize(
    ("text", "java"),
    [
        ("5.0", "5.0"), ("0.0", "0.0"), ("1e+20", "1.0E20"), ("-1.5e-05", "-1.5E-5"), ("0.001", "0.001"),
        ("9999999.0", "9999999.0"), ("10000000.0", "1.0E7"), ("3.4028235e+38", "3.4028235E38"),
        ("-0.0", "-0.0"), ("100", "100.0"),
    ],
)  # fmt: skip
def test_numbers_are_written_as_java_does(text, java):
    assert java_number(text) == java


def statement(ddl):
    tx = Transaction("u:9", "mysql-bin.000001", 4, 90, 1_790_000_000_000, 7, (), ddl)
    return [json.loads(r.value)["payload"] for r in DebeziumEncoder("p").encode([tx]) if not r.topic.startswith("__")]


def test_a_swap_comes_as_one_schema_change_per_rename():
    a, b = replace(ITEMS, name="a"), replace(ORDERS, name="b")
    changes = (
        TableChange("shop", "c", replace(a, name="c"), old=("shop", "a")),
        TableChange("shop", "a", replace(b, name="a"), old=("shop", "b")),
    )
    sent = statement(Ddl("", "RENAME TABLE shop.a TO shop.c, shop.b TO shop.a", "RENAME", ("shop", "c"), changes))
    assert [m["ddl"] for m in sent] == [
        "RENAME TABLE `shop`.`a` TO `shop`.`c`",
        "RENAME TABLE `shop`.`b` TO `shop`.`a`",
    ]
    told = [m["tableChanges"][0] for m in sent]
    assert [(t["type"], t["id"]) for t in told] == [
        ("ALTER", '"shop"."a","shop"."c"'),
        ("ALTER", '"shop"."b","shop"."a"'),
    ]
    assert told[1]["table"]["primaryKeyColumnNames"] == ["id"]


def test_a_drop_names_the_table_in_full_and_has_no_columns():
    sent = statement(Ddl("shop", "drop table items", "ERASE", ("shop", "items"), (TableChange("shop", "items", None),)))
    assert [(m["ddl"], m["tableChanges"][0]["type"], m["tableChanges"][0]["table"]) for m in sent] == [
        ("DROP TABLE `shop`.`items`", "DROP", None)
    ]


def test_a_truncate_is_a_schema_change_and_an_event_of_its_table():
    change = TableChange("shop", "items", ITEMS)
    told, event = statement(Ddl("shop", "TRUNCATE items", "TRUNCATE", ("shop", "items"), (change,)))
    assert (told["ddl"], told["tableChanges"]) == ("TRUNCATE items", [])
    assert (event["op"], event["before"], event["after"]) == ("t", None, None)


def test_an_index_changes_no_table():
    [told] = statement(Ddl("shop", "CREATE INDEX i ON items (qty)", "CINDEX", ("shop", "items")))
    assert (told["databaseName"], told["tableChanges"]) == ("shop", [])


def test_topics_have_names_that_kafka_takes():
    assert DebeziumEncoder("p").topics([replace(ITEMS, name="odd `keys`")])[0] == "p.shop.odd__keys_"
