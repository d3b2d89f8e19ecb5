"""Snapshots against an oracle: changes applied one by one, in the source's order, in plain Python.

Changes of a format whose positions alone order may come in any order and twice, also those whose images tell a part of
the row (absent columns keep their value): however late a change comes, the row is folded from all of its key's.
"""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from cdc_platform import tables
from cdc_platform.explain.changes import Changes
from cdc_platform.explain.table import find
from cdc_platform.mysql.types import parse_type
from cdc_platform.snapshots.reduce.fold import fold, profile
from cdc_platform.snapshots.schema.columns import TableColumn
from cdc_platform.spark import delta_sql
from tests.changelog.feed import Feed, Image, SourceTable, read
from tests.lakes import store_at

pytestmark = pytest.mark.spark

FULL = SourceTable("f", "full", [("id", "int"), ("v", "varchar(20)"), ("n", "int")])
CUT = SourceTable("f", "cut", [("v", "varchar(20)"), ("a", "varchar(20)"), ("b", "bigint unsigned")], ("a", "b"))
PARTIAL = SourceTable("f", "partial", [("id", "int"), ("v", "varchar(20)"), ("n", "int"), ("m", "text")])
LATE = SourceTable("f", "late", PARTIAL.columns)
FEW = (2, ("cut", "partial", "late"))
ALL = (3, ("full", "cut", "partial", "late"))
"""Batches, and tables: what is made of `full` is made of `cut` too."""
KEYS: dict[str, list[Image]] = {
    "full": [{"id": str(i)} for i in range(40)],
    "cut": [{"a": a, "b": str(b)} for a in ("", "x", "X", "é") for b in (0, 7, 2**64 - 1)],
    "partial": [{"id": str(i)} for i in range(25)],
    "late": [{"id": str(i)} for i in range(25)],
}
CASTS: dict[str, Callable[[str], Any]] = {"int": int, "bigint unsigned": int}


class Oracle:
    """A source table, the changes made to it, and what it holds in the end."""

    def __init__(self, table: SourceTable, seed: int):
        self.table, self.random = table, random.Random(seed)
        self.live: dict[tuple, Image] = {}
        self.changes: list[dict[str, Any]] = []
        self.pos = (1, 0)
        self.counts: dict[str, int] = {}

    def _at(self) -> tuple:
        file, pos = self.pos
        self.pos = (file + 1, 4) if self.random.random() < 0.02 else (file, pos + self.random.choice((1, 90, 10**11)))
        return self.pos

    def _key(self, row: Image) -> tuple:
        return tuple(row[k] for k in self.table.keys)

    def _values(self) -> Image:
        rest = [(n, t) for n, t in self.table.columns if n not in self.table.keys]
        return {n: self.random.choice([None, "7", "-3"] if t == "int" else [None, "", "a", "é'\\"]) for n, t in rest}

    def say(self, *events: dict[str, Any]) -> None:
        self.changes += events

    def step(self) -> None:
        kinds = ["insert"] * 3 + ["update", "update", "delete", "move", "swap", "move_in_two"]
        kind = self.random.choice(kinds)
        self.counts[kind] = self.counts.get(kind, 0) + 1
        getattr(self, kind)()

    def insert(self) -> None:
        key = self.random.choice(KEYS[self.table.name])
        row = {**key, **self._values()}
        if self._key(row) not in self.live:
            self.live[self._key(row)] = row
            self.say(self.table.insert(self._at(), row))

    def _pick(self, n: int = 1) -> list[Image] | None:
        return self.random.sample(list(self.live.values()), n) if len(self.live) >= n else None

    def update(self) -> None:
        for old in self._pick() or ():
            new = {**old, **self._values()}
            self.live[self._key(old)] = new
            self.say(self.table.update(self._at(), old, new))

    def delete(self) -> None:
        for old in self._pick() or ():
            del self.live[self._key(old)]
            self.say(self.table.delete(self._at(), old))

    def _free(self) -> Image | None:
        free = [k for k in KEYS[self.table.name] if self._key(k) not in self.live]
        return self.random.choice(free) if free else None

    def move(self, old: Image | None = None, key: Image | None = None) -> Image | None:
        """A key change told as one update."""
        old = old or (self._pick() or [None])[0]
        key = key or self._free()
        if old is None or key is None:
            return None
        new = {**old, **key}
        del self.live[self._key(old)]
        self.live[self._key(new)] = new
        self.say(self.told_move(old, new))
        return new

    def told_move(self, old: Image, new: Image) -> dict[str, Any]:
        return self.table.update(self._at(), old, new)

    def swap(self) -> None:
        """Two rows exchange their keys through a third."""
        two, free = self._pick(2), self._free()
        if two and free:
            one, other = two
            away = self.move(one, free)
            self.move(other, {k: one[k] for k in self.table.keys})
            self.move(away, {k: other[k] for k in self.table.keys})

    def move_in_two(self) -> None:
        """A key change as Debezium tells it: a delete and a create at one position."""
        old, key = (self._pick() or [None])[0], self._free()
        if old and key:
            new, at = {**old, **key}, self._at()
            del self.live[self._key(old)]
            self.live[self._key(new)] = new
            self.say(self.table.delete(at, old), self.table.insert(at, new))

    def truncate(self) -> None:
        self.live.clear()
        self.say({**self.table.change("truncate", self._at()), "schema_version": None})

    def expected(self) -> list[dict[str, Any]]:
        """The rows as a snapshot should hold them, by key."""
        types = dict(self.table.columns)
        rows = self.live.values()
        return self.by_key([{n: v if v is None else CASTS.get(types[n], str)(v) for n, v in r.items()} for r in rows])

    def by_key(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return sorted(rows, key=lambda r: [str(r[k]) for k in self.table.keys])


class PartialOracle(Oracle):
    """As above; updates hold only what changed, deletes only the key."""

    def update(self) -> None:
        for old in self._pick() or ():
            changed = {n: v for n, v in self._values().items() if self.random.random() < 0.5}
            new = {**old, **changed}
            self.live[self._key(old)] = new
            key = {k: old[k] for k in self.table.keys}
            before = self.random.choice([None, key, old])
            after = changed if before and self.random.random() < 0.5 else {**key, **changed}
            self.say({**self.table.update(self._at(), before or {}, after), "before": before, "key": key})

    def delete(self) -> None:
        for old in self._pick() or ():
            del self.live[self._key(old)]
            self.say(self.table.delete(self._at(), {k: old[k] for k in self.table.keys}))


def shuffled(changes: list[dict[str, Any]], rng: random.Random, batches: int) -> list[list[dict[str, Any]]]:
    """Every change in some batch, some twice, in no order at all."""
    come = changes + rng.sample(changes, len(changes) // 10)
    rng.shuffle(come)
    return [come[i::batches] for i in range(batches)]


def in_order(changes: list[dict[str, Any]], rng: random.Random, batches: int) -> list[list[dict[str, Any]]]:
    """Batches in the source's order, each but the first beginning with the end of the one before."""
    size = -(-len(changes) // batches)
    return [changes[max(0, i * size - (20 if i else 0)) : (i + 1) * size] for i in range(batches)]


World = tuple[Feed, dict[str, Oracle], int]


@pytest.fixture(scope="module", params=[FEW, pytest.param(ALL, marks=pytest.mark.thorough)], ids=["few", "all"])
def world(request: pytest.FixtureRequest, spark: Any, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A feed, the oracle of each of its tables, and the number of batches."""
    from cdc_platform.config import parse_config

    count, names = request.param
    folder = tmp_path_factory.mktemp("fold")
    source = {"name": "fuzz", "format": "dataworks", "topics": ["t"], "max_bytes_per_batch": "1"}
    feed = Feed(spark, parse_config({"lake": str(folder / "lake"), "sources": [source]}, folder / "cdc.yaml"), "fuzz")
    full, cut, partial, late = Oracle(FULL, 1), Oracle(CUT, 2), PartialOracle(PARTIAL, 3), PartialOracle(LATE, 5)
    for i in range(500):
        full.step()
        partial.step()
        late.step()
        cut.step()
        if i in (100, 101, 320):
            cut.truncate()
    rng = random.Random(4)
    oracles = {o.table.name: o for o in (full, cut, partial, late) if o.table.name in names}
    deliveries = [(in_order if o is partial else shuffled)(o.changes, rng, count) for o in oracles.values()]
    for i in range(count):
        stated = [o.table.stated() for o in oracles.values()] if i == 0 else []
        feed.say(*stated, *(e for batches in deliveries for e in batches[i]))
    feed.unify()
    assert feed.snapshot().batches >= count
    return feed, oracles, count


def test_snapshot_equals_changes_applied_in_order(world: World) -> None:
    feed, oracles, _ = world
    for table, oracle in oracles.items():
        assert min(oracle.counts.values()) > 20, "every kind of change occurs"
        assert feed.state("f", table) == ("live", None)
        assert len(oracle.expected()) >= 5
        assert oracle.by_key(feed.live("f", table)) == oracle.expected(), table


def test_the_rule_told_of_one_key_says_the_same(world: World) -> None:
    feed, oracles, _ = world
    for table, own in oracles.items():
        found = find(feed.config, feed.source, f"f.{table}")
        changes = Changes(feed.config, found)
        images = [e[i] for e in own.changes for i in ("key", "before", "after") if e[i]]
        keys = {tuple(image[k] for k in own.table.keys) for image in images if all(k in image for k in own.table.keys)}
        told = (changes.row(dict(zip(own.table.keys, key, strict=True))) for key in keys)
        rows = [row for row in told if row.cells is not None]
        texts = [sorted((name, cell.text) for name, cell in (row.cells or {}).items()) for row in rows]
        expected = [sorted((n, None if v is None else str(v)) for n, v in row.items()) for row in own.expected()]
        assert len(keys) > len(rows)
        assert sorted(texts, key=repr) == sorted(expected, key=repr), table


def test_duplicates_are_counted_and_the_changelog_holds_each_change_once(world: World) -> None:
    feed, oracles, count = world
    told = sum(len(o.changes) for o in oracles.values())
    rows = feed.rows(tables.CHANGELOG)
    assert len(rows) == told
    places = {(r["table"], r["binlog_file"], r["binlog_pos"], r["op"]) for r in rows}
    assert len(places) == told
    again = sum(r["records"] for r in feed.rows(tables.OFFSET_LEDGER) if r["outcome"] == "duplicate")
    twice = sum(len(o.changes) // 10 for t, o in oracles.items() if t != "partial")
    assert again == twice + 20 * (count - 1)


def test_the_snapshot_holds_rows_and_bookkeeping_only_for_every_reader(world: World) -> None:
    feed, *_ = world
    path = feed.target("f", "cut").snapshot.uri()
    other = read(path)
    assert other.column_names == ["v", "a", "b", "_cdc_order", "_cdc_source_time"], "the source's order of columns"
    spark = delta_sql.read(feed.spark, store_at(path)).drop("_cdc_order", "_cdc_source_time").toArrow().to_pylist()
    mine = [{k: r[k] for k in ("v", "a", "b")} for r in other.to_pylist()]
    assert sorted(mine, key=repr) == sorted(spark, key=repr)


@pytest.mark.thorough
def test_a_batch_done_again_changes_nothing(world: World) -> None:
    feed, oracles, _ = world
    before = feed.kept("f", oracles)
    feed.forget_last_commit("snapshots")
    assert feed.snapshot().batches == 1
    assert feed.kept("f", oracles) == before


def test_where_some_changes_tell_no_key_the_images_do(spark: Any, make_config: Any) -> None:
    table = SourceTable("f", "mixed", [("id", "int"), ("v", "varchar(20)")])
    feed = Feed(spark, make_config([{"name": "s", "format": "canal", "topics": ["t"]}]), "s")
    rows: list[Image] = [{"id": str(i), "v": "old"} for i in range(4)]
    changes = [table.insert((1, i), r) for i, r in enumerate(rows)]
    changes += [table.update((1, 10), rows[1], {"id": "1", "v": "new"}), table.delete((1, 11), rows[2])]
    changes.append(table.update((1, 12), rows[3], {"id": "9", "v": "moved"}))
    feed.say(table.stated(), *(c | ({"key": None} if i % 2 else {}) for i, c in enumerate(changes)))
    feed.catch_up()
    assert sorted((r["id"], r["v"]) for r in feed.live("f", "mixed")) == [(0, "old"), (1, "new"), (9, "moved")]


def test_told_keys_spare_the_images_before(spark: Any, tmp_path: Path) -> None:
    columns = [TableColumn(n, parse_type(t), n == "id") for n, t in (("id", "int"), ("v", "varchar(20)"))]
    order = "named_struct('epoch', 0L, 'file', 1L, 'pos', CAST(id AS DECIMAL(20,0)), 'event', 0L, 'row', 0L"
    stored = spark.range(6).selectExpr(
        *("'update' AS op", "map('id', CAST(id % 3 AS STRING)) AS key", "1 AS before"),
        "map('id', CAST(id % 3 AS STRING), 'v', CAST(id AS STRING)) AS after",
        *(f"{order}, 'landed', id) AS order_key", "current_timestamp() AS source_time"),
        *("0 AS partition", "0 AS entry_index", "0 AS row_index"),
    )
    stored.write.parquet(str(tmp_path / "rows"))
    as_images = stored.withColumn("before", stored["after"]).schema
    rows = spark.read.schema(as_images).parquet(str(tmp_path / "rows"))  # `before` can't be read
    figures = profile(rows, columns, told_keys=True)
    found = fold(rows, columns, figures, partial=False).select("_k0", "_v1").collect()
    assert (figures.changes, sorted(map(tuple, found))) == (6, [(0, "3"), (1, "4"), (2, "5")])
    with pytest.raises(Py4JJavaError, match="PARQUET_COLUMN_DATA_TYPE_MISMATCH"):
        profile(rows, columns, told_keys=False)
