"""landing → envelopes: split messages over batches, shards and reruns.

One lake holds many scenarios, each in a partition of its own; each commit to landing is one batch.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from cdc_platform.changes.run import messages_path
from cdc_platform.envelopes import run as envelopes
from cdc_platform.formats.pb import tencent_dts_pb2 as pb
from cdc_platform.lake import delta_table, sequences, stores
from cdc_platform.spark import delta_sql
from cdc_platform.tables import CHECKPOINT, ENVELOPES, LANDING, OFFSET_LEDGER, QUARANTINE, SEQUENCES, WAITING

pytestmark = pytest.mark.spark

START = datetime(2026, 11, 20, tzinfo=UTC)
PAYLOAD = bytes(range(256)) * 40


def envelope(total, index, data):
    return pb.Envelope(version=1, total=total, index=index, data=data).SerializeToString()


def split(total, payload=PAYLOAD, shard=None):
    """A message as the values and headers of its `total` records."""
    size = -(-len(payload) // total)
    headers = [("ShardId", shard.encode())] if shard else []
    return [(envelope(total, i, payload[i * size : (i + 1) * size]), headers) for i in range(total)]


WHOLE = [(envelope(1, 0, b"whole"), [])]


class Lake:
    """A source whose landing table is written by the test."""

    def __init__(self, spark, config):
        self.spark, self.config, self.source = spark, config, config.sources[0]
        self.landing = delta_sql.ensure(LANDING, LANDING.at(stores.lake(config), source="shop"))
        self.next = {}

    def land(self, records, hours=0):
        """One batch: {partition: [(value, headers)]}, appended to landing in one file."""
        rows = []
        for partition, values in sorted(records.items()):
            for value, headers in values:
                offset = self.next.get(partition, 0)
                self.next[partition] = offset + 1
                at = START + timedelta(hours=hours)
                rows.append(("t", partition, offset, at, 0, None, bytearray(value), headers, at, None))
        schema = self.spark.read.format("delta").load(self.landing.uri()).schema
        self.spark.createDataFrame(rows, schema).coalesce(1).write.format("delta").mode("append").save(
            self.landing.uri()
        )

    def run(self):
        return envelopes.run(self.spark, self.config, self.source)

    def read(self, table, **names):
        return delta_sql.read(self.spark, table.at(stores.lake(self.config), **names))

    def messages(self):
        """partition → [(offset, last_offset, parts, payload)]"""
        columns = ("partition", "offset", "last_offset", "parts", "value")
        out = {}
        for r in self.read(ENVELOPES, source="shop").orderBy("partition", "offset").select(*columns).collect():
            out.setdefault(r[0], []).append((r[1], r[2], r[3], bytes(r[4])))
        return out

    def quarantined(self):
        """partition → [(offset, reason)]"""
        out = {}
        for r in self.read(QUARANTINE).orderBy("partition", "offset").collect():
            assert (r["topic"], r["room"], r["source"]) == ("t", "envelopes", "shop")
            out.setdefault(r["partition"], []).append((r["offset"], r["reason"]))
        return out

    def outcomes(self):
        """partition → {outcome: records}, without those that cancel out"""
        out = {}
        for r in self.read(OFFSET_LEDGER).groupBy("partition", "outcome").agg(F.sum("records").alias("n")).collect():
            if r["n"]:
                out.setdefault(r["partition"], {})[r["outcome"]] = r["n"]
        return out

    def everything(self):
        tables = (
            ENVELOPES.at(stores.lake(self.config), source="shop"),
            QUARANTINE.at(stores.lake(self.config)),
            OFFSET_LEDGER.at(stores.lake(self.config)),
            WAITING.at(stores.lake(self.config), source="shop"),
            SEQUENCES.at(stores.lake(self.config)),
        )
        frames = [delta_sql.read(self.spark, t).drop("quarantined_at", "at") for t in tables]
        return [sorted(str(r) for r in f.collect()) for f in frames]


@pytest.fixture
def shop(spark, make_config):
    source = {
        "name": "shop",
        "format": "tencent_dts",
        "topics": ["t"],
        "max_bytes_per_batch": "1",
        "waiting_timeout_s": 3600,
    }
    return Lake(spark, make_config([source]))


PARTS = 4


def test_a_message_cut_between_batches_anywhere_is_put_together(shop):
    parts = split(PARTS)
    cuts = {cut: (parts[:cut], parts[cut:]) for cut in range(PARTS + 1)}  # partition = place of the cut
    one_by_one = 50
    for batch in range(2):
        shop.land(
            {
                **{cut: halves[batch] for cut, halves in cuts.items()},
                one_by_one: parts[batch : batch + 1],
                60: WHOLE,
            }
        )
    first = shop.run()
    assert (first.batches, first.metrics["waiting"]) == (2, 2)  # the message that comes one by one
    shop.land({one_by_one: parts[2:3]})
    shop.land({one_by_one: parts[3:4], 60: WHOLE})
    assert shop.run().metrics["waiting"] == 0
    found = shop.messages()
    assert found == {
        **{p: [(0, PARTS - 1, PARTS, PAYLOAD)] for p in (*cuts, one_by_one)},
        60: [(i, i, 1, b"whole") for i in range(3)],
    }
    assert shop.quarantined() == {}
    assert shop.outcomes() == {}  # what waited is taken back; the changelog accounts for messages
    assert shop.run().batches == 0


@pytest.mark.thorough
def test_torn_repeated_and_orphaned_parts_get_a_verdict_and_an_address(shop):
    parts, other = split(3), split(3, b"another message" * 9)
    shop.land(
        {
            0: [*parts[:2], *other, *WHOLE],  # begun anew with other bytes
            1: [parts[0], parts[0], *parts[1:], parts[2]],  # sent twice, the last one too
            2: [parts[1], parts[2], *WHOLE],  # without its beginning
            3: [parts[0], parts[2], *WHOLE],  # a part is missing
            4: [(b"\xff\xff", []), *parts],  # no envelope at all
            5: [(envelope(2, 5, b"x"), []), *parts],  # says part 5 of 2
            6: parts[:2],  # unfinished
        }
    )
    assert shop.run().metrics["waiting"] == 2
    assert shop.messages() == {
        0: [(2, 4, 3, b"another message" * 9), (5, 5, 1, b"whole")],
        1: [(0, 3, 3, PAYLOAD)],
        2: [(2, 2, 1, b"whole")],
        3: [(2, 2, 1, b"whole")],
        4: [(1, 3, 3, PAYLOAD)],
        5: [(1, 3, 3, PAYLOAD)],
    }
    found = shop.quarantined()
    assert {p: [o for o, _ in rows] for p, rows in found.items()} == {
        0: [0, 1],
        2: [0, 1],
        3: [0, 1],
        4: [0],
        5: [0],
    }
    assert all(reason for rows in found.values() for _, reason in rows)
    assert "part 2 of 3 never came" in found[0][0][1]
    assert shop.outcomes() == {
        0: {"quarantined": 2},
        1: {"duplicate": 2},
        2: {"quarantined": 2},
        3: {"quarantined": 2},
        4: {"quarantined": 1},
        5: {"quarantined": 1},
        6: {"waiting": 2},
    }


@pytest.mark.thorough
def test_shards_of_one_partition_are_told_apart_also_across_batches(shop):
    a, b = split(3, b"A" * 300, "set_1"), split(3, b"B" * 300, "set_2")
    shop.land({0: [a[0], b[0], b[1], a[1]]})
    shop.land({0: [b[2], *WHOLE, a[2]]})
    shop.run()
    rows = (
        shop.read(ENVELOPES, source="shop")
        .orderBy("offset")
        .select("offset", "last_offset", "shard", "value")
        .collect()
    )
    assert [(r[0], r[1], r[2], bytes(r[3])) for r in rows] == [
        (0, 6, "set_1", b"A" * 300),
        (1, 4, "set_2", b"B" * 300),
        (5, 5, "", b"whole"),
    ]
    assert shop.outcomes() == {}


@pytest.mark.thorough
def test_what_stays_unfinished_for_too_long_is_quarantined_and_no_longer_waits(shop):
    a, b = split(2, b"A" * 300, "set_1"), split(2, b"B" * 300, "set_2")
    shop.land({0: [a[0]], 1: [a[0]]})
    shop.land({0: b, 1: b}, hours=0.9)
    assert shop.run().metrics["waiting"] == 2
    shop.land({0: b, 1: [a[1]]}, hours=1.1)
    assert shop.run().metrics["waiting"] == 0
    found = shop.quarantined()
    assert list(found) == [0]
    assert "3600 s" in found[0][0][1]
    assert shop.messages()[1][0] == (0, 3, 2, b"A" * 300)  # it came late, but it came
    assert shop.outcomes() == {0: {"quarantined": 1}}


def numbered(records, first):
    """The same records with the header by which a sender numbers them."""
    return [(value, [*headers, ("ps", b"%d" % n)]) for n, (value, headers) in enumerate(records, first)]


@pytest.mark.thorough
def test_a_record_that_its_sender_numbered_and_that_never_came_is_told(shop):
    shop.land({0: numbered(WHOLE * 3, 1), 1: numbered(split(3, shard="a"), 7)})
    shop.land({0: numbered([*WHOLE, (b"no envelope", [])], 6), 1: numbered(WHOLE, 1)})
    shop.run()
    shop.land({0: numbered(WHOLE, 8)})
    shop.run()
    rows = shop.read(SEQUENCES).orderBy("partition", "from_offset").collect()
    assert [(r["batch"], r["partition"], r["shard"], r["first"], r["last"]) for r in rows] == [
        *((0, 0, "", 1, 3), (1, 0, "", 6, 7), (2, 0, "", 8, 8)),
        *((0, 1, "a", 7, 9), (1, 1, "", 1, 1)),
    ]
    [gap] = sequences.gaps(shop.config, shop.source)
    assert (gap.partition, gap.first, gap.last, gap.before, gap.after, gap.removed) == (0, 4, 5, 2, 3, False)


@pytest.mark.thorough
@pytest.mark.parametrize("again", [(0,), (1, 0)], ids=["all", "one, all"])
def test_a_batch_that_is_repeated_after_a_crash_writes_nothing_twice(shop, again):
    """Killed after its writes and before its checkpoint: Spark runs the same batch again, or all from the first."""
    parts = numbered(split(3), 1)
    shop.land({0: parts[:2], 1: [parts[1]], 2: [*parts, *WHOLE]})
    shop.land({0: parts[2:], 1: parts[:1], 2: parts[:1]})
    shop.run()
    before = shop.everything()
    checkpoint = Path(CHECKPOINT.at(shop.config.lake, room="envelopes", source="shop"))
    for batch in again:
        for done in [
            p for p in (checkpoint / "commits").iterdir() if p.name.strip(".").removesuffix(".crc") >= str(batch)
        ]:
            done.unlink()
        for planned in [
            p for p in (checkpoint / "offsets").iterdir() if p.name.strip(".").removesuffix(".crc") > str(batch)
        ]:
            planned.unlink()
        assert shop.run().batches == 2 - batch
        assert shop.everything() == before


def test_formats_that_never_split_have_no_envelopes_table(spark, make_config):
    config = make_config([{"name": "deb", "format": "debezium", "topics": ["t"]}])
    source = config.sources[0]
    assert envelopes.run(spark, config, source).rows == 0
    assert not delta_table.exists(ENVELOPES.at(stores.lake(config), source="deb"))
    assert messages_path(config, source) == LANDING.at(stores.lake(config), source="deb")
