"""Messages as Debezium's connectors of PostgreSQL and SQL Server write them, for the session's broker."""

import json
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.formats.json_fixtures import FIXTURES, records

PLACEHOLDER = "__debezium_unavailable_value"
FIELDS = [
    {"type": "int64", "optional": False, "field": "id"},
    {"type": "string", "optional": True, "field": "name"},
    {"type": "string", "optional": True, "field": "big"},
]
Message = tuple[str, bytes | None, bytes | None]


class Postgresql:
    """Row messages of one table: `sequence` is (last commit, LSN), as transactions give it."""

    def __init__(self, prefix: str, schema: str, table: str = "t"):
        self.schema, self.table, self.topic = schema, table, f"{prefix}.{schema}.{table}"

    def row(self, op: str, before: Any, after: Any, sequence: tuple[int | None, int], **source: Any) -> Message:
        key = {"id": (after or before)["id"]}
        told = {
            **{"connector": "postgresql", "name": "pg", "ts_ms": 1_700_000_000_000 + sequence[1], "db": "app"},
            **{"schema": self.schema, "table": self.table, "snapshot": "false", "lsn": sequence[1]},
            "sequence": json.dumps([None if n is None else str(n) for n in sequence]),
            **source,
        }
        payload = {"before": before, "after": after, "source": told, "op": op}
        images = [{"type": "struct", "optional": True, "field": f, "fields": FIELDS} for f in ("before", "after")]
        value = {
            "schema": {"type": "struct", "fields": [*images, {"type": "string", "field": "op"}]},
            "payload": payload,
        }
        keyed = {"schema": {"type": "struct", "fields": FIELDS[:1]}, "payload": key}
        return self.topic, None if op == "t" else json.dumps(keyed).encode(), json.dumps(value).encode()

    def truncate(self, sequence: tuple[int | None, int]) -> Message:
        return self.row("t", {"id": 0}, None, sequence)

    def tombstone(self, id: int) -> Message:
        keyed = {"schema": {"type": "struct", "fields": FIELDS[:1]}, "payload": {"id": id}}
        return self.topic, json.dumps(keyed).encode(), None


def image(id: int, name: str | None = None, big: str | None = None) -> dict[str, Any]:
    return {"id": id, "name": name, "big": big}


def documented(prefix: str, scenario: str) -> list[Message]:
    """The vendor's own messages of a fixture."""
    _, found = records(FIXTURES / "debezium" / f"{scenario}.json")
    return [(f"{prefix}.{topic}", key, value) for topic, key, value in found]


def send(servers: str, messages: list[Message], partitions: int = 1) -> None:
    """Publishes in order; topics that aren't there are made."""
    admin = AdminClient({"bootstrap.servers": servers})
    there = admin.list_topics(timeout=10).topics
    new = [NewTopic(t, partitions, 1) for t in sorted({t for t, _, _ in messages}) if t not in there]
    for future in admin.create_topics(new).values() if new else ():
        future.result()
    # One batch under way at a time: see _PRODUCER of feeds/publish.py.
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "max.in.flight": 1})
    for topic, key, value in messages:
        producer.produce(topic, value, key)
    assert producer.flush(30) == 0
