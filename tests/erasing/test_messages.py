"""The messages that hold a subject, by what landing and `changes` have of them. Without Spark."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from cdc_platform.changelog.schema import SchemaHistory, Step
from cdc_platform.config import Config
from cdc_platform.erasing import messages, subject
from cdc_platform.erasing.errors import EraseRefused
from cdc_platform.erasing.proof import Payloads
from cdc_platform.erasing.rewrite import Bytes
from cdc_platform.erasing.subject import Subject
from cdc_platform.explain.records import Address
from cdc_platform.explain.table import Table
from cdc_platform.formats.events import columns_json
from cdc_platform.lake import delta_table, stores
from cdc_platform.lake.store import File
from cdc_platform.landing.erased import NOTHING, Known, digest, without_erased
from cdc_platform.mysql.effects import Effect
from cdc_platform.snapshots.schema.seen import Seen
from cdc_platform.tables import CHANGES, LANDING

LANDED = datetime(2026, 11, 20, tzinfo=UTC)
NAME = ("d", "a")


class Lake:
    """Of one source, of which a test writes the tables itself."""

    def __init__(self, make_config: Callable[..., Config]):
        self.config = make_config([{"name": "s", "format": "debezium", "topics": ["t"]}])
        self.source = self.config.source("s")
        self.commits = 0

    def _write(self, rows: list[dict[str, Any]], schema: pa.Schema, path: str) -> None:
        self.commits += 1
        at = {"topic": "t", "partition": 0, "landed_at": LANDED + timedelta(hours=self.commits)}
        write_deltalake(path, pa.Table.from_pylist([{**at, **row} for row in rows], schema), mode="append")

    def land(self, *rows: dict[str, Any]) -> None:
        """One commit of records."""
        self._write(list(rows), LANDING.arrow(), LANDING.at(self.config.lake, source="s"))

    def decode(self, *rows: dict[str, Any]) -> None:
        """One commit of events."""
        path = CHANGES.at(self.config.lake, format="debezium", source="s")
        self._write(list(rows), CHANGES.arrow(), path)

    def of(self, *events: dict[str, Any]) -> list[messages.Message]:
        """The messages of a subject with these events."""
        at = {"topic": "t", "partition": 0, "kind": "row", "key": None, "before": None, "after": None, "reason": None}
        table = Table(self.source, NAME, NAME, None)
        return messages.of(self.config, Subject(table, ({"id": "7"},), [{**at, **e} for e in events]))


@pytest.fixture
def lake(make_config: Callable[..., Config]) -> Lake:
    return Lake(make_config)


def row(offset: int, entry: int, id_: int, **more: Any) -> dict[str, Any]:
    """An event, as `changes` has it."""
    event = {"offset": offset, "entry_index": entry, "row_index": 0, "kind": "row", "op": "insert"}
    return {**event, "db": "d", "table": "a", "key": [("id", str(id_))], "after": [("id", str(id_))], **more}


def mine(offset: int, entry: int) -> dict[str, Any]:
    """The place of one of the subject's events."""
    return {"offset": offset, "entry_index": entry, "row_index": 0}


def test_where_a_topic_was_made_again_others_stand_at_the_address(lake: Lake):
    """Offsets begin again: nothing is erased by an address that two records share."""
    lake.land({"offset": 0, "value": b"created"}, {"offset": 1, "value": b"seven"}, {"offset": 2, "value": b"eight"})
    lake.decode(row(1, 0, 7), row(2, 0, 8))
    assert [m.address.offset for m in lake.of(mine(1, 0))] == [1]
    lake.land({"offset": 0, "value": b"twenty"}, {"offset": 1, "value": b"twenty-one"})
    lake.decode(row(0, 0, 20), row(1, 0, 21))
    with pytest.raises(EraseRefused, match=r"two records were landed as t/0/1: the offsets of t/0 began again"):
        lake.of(mine(1, 0))
    assert [m.address.offset for m in lake.of(mine(2, 0))] == [2], "an address that only one has"


def test_a_record_that_was_landed_twice_is_one(lake: Lake):
    lake.land({"offset": 1, "value": b"seven"})
    lake.land({"offset": 1, "value": b"seven"})
    lake.decode(row(1, 0, 7))
    assert [m.address.offset for m in lake.of(mine(1, 0))] == [1]


def test_tombstones_of_its_keys_are_its_own(lake: Lake):
    """By the bytes of the key, within the partition: none of another's, nor in another partition."""
    seven, eight = b'{"id": 7}', b'{"id": 8}'
    lake.land(*({"offset": 1 + i, "key": key, "value": b"row"} for i, key in enumerate((seven, eight))))
    lake.land(
        {"offset": 3, "key": seven, "value": b"deleted"}, {"offset": 4, "key": seven}, {"offset": 5, "key": eight}
    )
    lake.land({"offset": 6, "key": seven, "partition": 1}, {"offset": 7, "key": None}, {"offset": 8, "key": seven})
    skip = {"entry_index": 0, "row_index": None, "kind": "skip", "reason": "tombstone"}
    lake.decode(row(1, 0, 7), row(2, 0, 8), row(3, 0, 7, op="delete"), *({"offset": i, **skip} for i in range(4, 9)))
    found = lake.of(mine(1, 0), mine(3, 0))
    assert [m.address for m in found] == [("t", 0, offset) for offset in (1, 3, 4, 8)]
    assert [(m.offsets, m.shared, m.left["reason"].to_pylist()) for m in found[2:]] == [
        ((4,), False, ["tombstone"]),
        ((8,), False, ["tombstone"]),
    ]


def test_a_tombstone_is_known_again_by_its_key():
    """As it is erased, as the proof looks for it, and as it is read from Kafka once more."""
    salt, key = b"salt", b'{"id": 7}'
    records = [{"offset": 1, "key": key, "value": b"row"}, {"offset": 2, "key": key}, {"offset": 3, "key": b"other"}]
    at = {"topic": "t", "partition": 0}
    batch = pa.RecordBatch.from_pylist([{**at, **r} for r in records], LANDING.arrow())
    gone = [Address("t", 0, offset) for offset in (1, 2)]
    work = Bytes(dict.fromkeys(gone, NOTHING), salt)
    left = work.erased(batch, work.mine(batch))
    assert left.column("key").to_pylist() == [None, None, b"other"]
    assert work.digests == {gone[0]: digest(salt, b"row"), gone[1]: digest(salt, key)}

    payloads = Payloads(salt, frozenset(work.digests.values()), frozenset(work.keys))
    assert list(payloads.there(batch)) == ["value", "key"]
    assert list(payloads.there(left)) == []
    elsewhere = pa.RecordBatch.from_pylist([{**at, "partition": 1, "offset": 2, "key": key}], LANDING.arrow())
    assert list(payloads.there(elsewhere)) == [], "another partition's"

    known = {(a.topic, a.partition, a.offset): [Known(told, salt, NOTHING)] for a, told in work.digests.items()}
    assert without_erased(batch, known).column("key").to_pylist() == [None, None, b"other"]
    assert without_erased(elsewhere, {("t", 1, 2): [Known(digest(salt, b"9"), salt, NOTHING)]}).equals(elsewhere)


def test_of_what_was_decoded_again_the_newest_telling_counts(lake: Lake):
    """It was read in the end: what a telling before could not read keeps nobody from erasing it."""
    lake.land({"offset": 1, "value": b"rows"})
    bad = {"offset": 1, "entry_index": 1, "row_index": 0, "kind": "error", "reason": "not yet"}
    lake.decode(row(1, 0, 7), bad)
    with pytest.raises(EraseRefused, match="could not be read"):
        lake.of(mine(1, 0))
    again = {"retold": True}
    lake.decode({**row(1, 0, 7), **again}, {**bad, **again, "reason": "still not"})
    with pytest.raises(EraseRefused, match="still not"):
        lake.of(mine(1, 0))
    lake.decode({**row(1, 0, 7), **again}, {**row(1, 1, 8), **again})
    [message] = lake.of(mine(1, 0))
    assert (message.others, message.left["key"].to_pylist()) == (1, [[("id", "8")]])


def test_a_name_that_two_tables_have_had(lake: Lake):
    """RENAME a TO b, and a new a: under the name a stand rows of both."""
    order: Any = [(i,) for i in range(3)]
    other = ("d", "b")
    effects = (Effect(0, None, NAME), Effect(0, NAME, other), Effect(0, None, NAME))
    steps = [Step(order[i], ("t", 0, i, 0), "", effect) for i, effect in enumerate(effects)]
    columns = columns_json([{"name": "id", "type": "int", "key": True}])
    history = SchemaHistory(steps, [(name, order[2], columns) for name in (NAME, other)])
    lake.decode(row(1, 0, 7), {**row(2, 0, 8), "table": "b"})
    path = CHANGES.at(stores.lake(lake.config), format="debezium", source="s")
    files = [File(path, name) for name in delta_table.files(path)]
    for name in (NAME, other):
        table = Table(lake.source, name, name, Seen(history, [], set(), []))
        with pytest.raises(EraseRefused, match=r"t/0/1 holds a row of d\.a, a name that d\.[ab] has had, too, or has"):
            subject.check_whose(subject.of(table, {"id": "7"}, files, follow=False))
        subject.check_whose(subject.of(table, {"id": "8"}, files, follow=False))


def test_a_row_is_followed_where_the_row_after_tells_a_part_of_its_key(lake: Lake):
    """An UPDATE of one column of the key under binlog_row_image MINIMAL."""

    def change(offset: int, op: str, key: dict[str, str], **after: str) -> dict[str, Any]:
        images = {
            "key": [*key.items()],
            "before": None if op == "insert" else [*key.items()],
            "after": [*after.items()],
        }
        return {**row(offset, 0, 7), "op": op, **images}

    was, became = {"tenant": "1", "no": "2"}, {"tenant": "1", "no": "3"}
    lake.decode(
        change(0, "insert", was, **was, email="ann@example.com"),
        change(1, "update", was, no="3"),
        change(2, "update", became, phone="555-0200"),
    )
    path = CHANGES.at(stores.lake(lake.config), format="debezium", source="s")
    files = [File(path, name) for name in delta_table.files(path)]
    columns = [{"name": n, "type": "varchar(99)", "key": n in was} for n in ("tenant", "no", "email", "phone")]
    history = SchemaHistory([], [(NAME, (0,), columns_json(columns))])
    table = Table(lake.source, NAME, NAME, Seen(history, [], set(), []))
    for key in (was, became):
        with pytest.raises(EraseRefused, match="has had other keys"):
            subject.of(table, key, files, follow=False)
        found = subject.of(table, key, files, follow=True)
        assert (len(found.keys), [a.offset for a in found.addresses]) == (2, [0, 1, 2])
        assert "ann@example.com" in found.texts
