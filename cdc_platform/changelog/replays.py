"""Which events that go back in a log were sent before: asked of `changes`, where all events are, for runs only that
begin behind what came before them (epochs.Log.candidates)."""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from functools import reduce
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from cdc_platform.changelog import erased_events
from cdc_platform.changelog.epochs import Place, Run, Segment, Unknown, Where
from cdc_platform.changelog.erased_events import Erased
from cdc_platform.changelog.event_content import CONTENT, PLACE, comparable, with_arrival
from cdc_platform.changelog.order import ADDRESS
from cdc_platform.changes.file_stats import NO_POSITION, Runs, arrival, millis
from cdc_platform.lake.data_files import Output, read, units
from cdc_platform.lake.store import File, Store
from cdc_platform.spark import arrow_tasks, delta_sql
from cdc_platform.tables import CHANGES

_READ = CHANGES.arrow(*Runs.COLUMNS)


def runs_of(spark: SparkSession, files: list[File], after: Mapping[tuple[str, int], int]) -> list[Run]:
    """Runs of the events in files whose arrivals reach into each other's, as those of messages that came in several
    records do. after: last arrival seen of each partition; events that came before it aren't among them."""
    [told] = arrow_tasks.run(spark, [files], _rows, _Sorted(dict(after)), {}).told
    return [Run.of(run) for run in told]


def _rows(files: list[File]) -> Iterator[pa.RecordBatch]:
    return chain.from_iterable(read(unit, _READ) for unit in units(files, whole=True))


class _Sorted:
    """The work of the task: runs of all events, sorted by arrival."""

    def __init__(self, after: dict[tuple[str, int], int]):
        self._after = after

    def __call__(self, batches: Iterator[pa.RecordBatch], _out: Mapping[str, Output]) -> Any:
        every = pa.Table.from_batches(batches, _READ)
        keys = pa.table({"arrival": arrival(every), "at": pa.array(range(every.num_rows), pa.int64())})
        order = keys.sort_by([("arrival", "ascending"), ("at", "ascending")]).column("at")
        runs = Runs()
        for events in every.take(order).to_batches():
            runs.add(events, self._after)
        return runs.to_json()


def divided(spark: SparkSession, files: list[File], runs: Mapping[Run, list[int]]) -> list[Run]:
    """Runs of a batch's files in parts, of which the others begin with the first event after one of these source times
    (ms)."""
    [told] = arrow_tasks.run(spark, [files], _rows, _Divided(dict(runs)), {}).told
    return [Run.of(run) for run in told]


class _Divided:
    """The work of the task: runs as these are, but that they end before the first event after one of their times."""

    def __init__(self, times: dict[Run, list[int]]):
        self._times = times

    def __call__(self, batches: Iterator[pa.RecordBatch], _out: Mapping[str, Output]) -> Any:
        parts = {run: [Runs() for _ in range(len(times) + 1)] for run, times in self._times.items()}
        reached = dict.fromkeys(parts, 0)
        for batch in batches:
            came, times = arrival(batch).to_numpy(), pc.fill_null(millis(batch.column("source_time")), -1).to_numpy()
            for run, marks in self._times.items():
                topic, partition = run.where
                here = pc.and_(pc.equal(batch.column("topic"), topic), pc.equal(batch.column("partition"), partition))
                here = here.to_numpy(zero_copy_only=False) & (came >= run.first) & (came <= run.last)
                latest = np.maximum.accumulate(np.where(here, times, -1))
                part = np.maximum(np.searchsorted(marks, latest, side="left"), reached[run])
                for number in np.unique(part[here]).tolist():
                    parts[run][number].add(batch.filter(pa.array(here & (part == number))))
                    reached[run] = number
        return [told for of in parts.values() for some in of for told in some.to_json() or ()]


def unknown(
    spark: SparkSession,
    changes: Store,
    files: list[File],
    candidates: Mapping[Run, Place],
    before: Sequence[Segment],
    arrived: Mapping[Where, int],
    erased: Sequence[Erased],
) -> dict[Run, Unknown | None]:
    """Of each run of a batch's files the first event that isn't stored at its place with its content; None: all are.
    candidates: runs, and the highest place before each. Events at that place may go on with a transaction of which a
    part came before: they are counted, for a compressed transaction may hold some that look alike. What is stored
    there more than once is taken again: it may have been sent again right behind itself, which nothing shows. Of an
    earlier log nothing goes on. before:
    segments so far, whose replays are no events of their own. arrived: last arrival of each partition before the
    batch. erased: events that were stored."""
    runs = list(candidates)
    if not runs:
        return {}
    of = _candidates(spark, candidates, before)
    mine = comparable(delta_sql.rows_of(spark, changes, files)).where("retold IS NULL OR NOT retold")
    mine = mine.join(F.broadcast(of), _within())
    # Of the entry before: rows of one entry arrive at once.
    came = Window.partitionBy("run").orderBy("arrival").rangeBetween(Window.unboundedPreceding, -1)
    mine = mine.withColumn("prior", F.max("arrival").over(came))
    content = [*PLACE, *CONTENT]
    run = ["run", *(f"_{c}" for c in ("topic", "partition", "since", "first", "file", "pos"))]
    ours = mine.groupBy(*run, *content).agg(F.sort_array(F.collect_list(F.struct("arrival", "prior"))).alias("at"))
    every = comparable(delta_sql.read(spark, changes))
    if erased:
        every = every.unionByName(_erased_copies(spark, mine, erased), allowMissingColumns=True)
    theirs = _stored(spark, every, runs, before, of, arrived).groupBy("topic", "partition", *content)
    known = theirs.agg(F.collect_set(F.struct("old", "arrival", "row_index")).alias("copies"))
    known = known.select("topic", "partition", "copies", *(F.col(c).alias(f"_{c}") for c in content))
    alike = reduce(Column.__and__, (F.col(c).eqNullSafe(F.col(f"_{c}")) for c in content))
    # Of its own partition what came before the run; of another one what came before the batch: of two that are new in
    # it each would pass for the other's copy.
    own = F.size(F.filter("copies", lambda c: c["arrival"] < F.col("_first")))
    others = F.size(F.filter("copies", lambda c: c["old"]))
    earlier = F.coalesce(F.exists("copies", lambda c: c["arrival"] < F.col("_since")), F.lit(False))
    counted = ours.join(known, alike, "left").groupBy("run", "_file", "_pos", "at", *content)
    here = (F.col("topic") == F.col("_topic")) & (F.col("partition") == F.col("_partition"))
    copies = F.sum(F.when(F.col("copies").isNull(), 0).when(here, own).otherwise(others))
    goes_on = "struct(file_no, binlog_pos) >= struct(_file, _pos) AND (size(at) > copies OR copies > 1)"
    figures = copies.cast("int").alias("copies"), F.bool_or(here & earlier).alias("earlier")
    new = counted.agg(*figures).where(f"copies = 0 OR (NOT earlier AND {goes_on})")
    new = new.withColumn("new", F.expr("at[IF(copies > 1, 0, copies)]"))
    first = new.select("run", "new.arrival", "new.prior", *PLACE, (F.col("copies") > 0).alias("again"))
    firsts = first.groupBy("run").agg(F.min(F.struct("arrival", "prior", *PLACE, "again")).alias("first")).collect()
    found: dict[Run, Unknown | None] = dict.fromkeys(runs)
    for row in firsts:
        run_, at = runs[row["run"]], row["first"]
        placed = at["file_no"] is not None and at["binlog_pos"] is not None
        place = (at["file_no"], int(at["binlog_pos"])) if placed else NO_POSITION
        found[run_] = Unknown(at["arrival"], place, at["prior"], at["again"])
    return found


def _erased_copies(spark: SparkSession, sent: DataFrame, erased: Sequence[Erased]) -> DataFrame:
    """Erased events of which copies were sent again, as they were stored."""
    return (
        with_arrival(erased_events.among(spark, sent, erased)).select(*ADDRESS, "arrival", *PLACE, *CONTENT).distinct()
    )


def _candidates(spark: SparkSession, candidates: Mapping[Run, Place], before: Sequence[Segment]) -> DataFrame:
    """run: their number, `_topic`, `_partition`, `_since`: arrival with which the partition's log began, `_first`,
    `_last`, and `_file`, `_pos`: the highest place before."""
    epoch = {s.where: s.epoch for s in sorted(before, key=lambda s: s.epoch)}
    since = {s.where: s.first for s in sorted(before, key=lambda s: -s.first) if s.epoch == epoch[s.where]}
    rows = [
        (i, *r.where, since.get(r.where, 0), r.first, r.last, h[0], Decimal(h[1]))
        for i, (r, h) in enumerate(candidates.items())
    ]
    columns = "_topic STRING, _partition INT, _since BIGINT, _first BIGINT, _last BIGINT"
    return spark.createDataFrame(rows, f"run INT, {columns}, _file BIGINT, _pos DECIMAL(20,0)")


def _stored(
    spark: SparkSession,
    events: DataFrame,
    runs: Sequence[Run],
    before: Sequence[Segment],
    candidates: DataFrame,
    arrived: Mapping[Where, int],
) -> DataFrame:
    """Of all events those at the runs' places, but for replays, with `old`: it came before the batch. Of other
    candidates in the batch only what lies beyond the highest place before them: the rest of them may be replays."""
    placed = [r for r in runs if r.high > NO_POSITION]
    low, high = min((r.low for r in placed), default=NO_POSITION), max((r.high for r in placed), default=NO_POSITION)
    stored = events.where("binlog_pos IS NOT NULL")
    stored = stored.where(F.col("file_no").between(low[0], high[0]))
    if low[0] == high[0]:
        stored = stored.where(F.col("binlog_pos").between(Decimal(low[1]), Decimal(high[1])))
    again = [(*s.where, s.first, s.last) for s in before if s.replay and low <= s.high and s.low <= high]
    if again:
        ranges = spark.createDataFrame(again, "_topic STRING, _partition INT, _first BIGINT, _last BIGINT")
        stored = stored.join(F.broadcast(ranges), _within(), "left_anti")
    ends = [(*where, last) for where, last in arrived.items()]
    known = spark.createDataFrame(ends, "topic STRING, partition INT, arrived BIGINT")
    stored = stored.join(F.broadcast(known), ["topic", "partition"], "left")
    stored = stored.withColumn("old", F.coalesce(F.col("arrival") <= F.col("arrived"), F.lit(False)))
    not_beyond = _within() & ~F.expr("struct(file_no, binlog_pos) > struct(_file, _pos)")
    return stored.join(F.broadcast(candidates), not_beyond, "left_anti")


def _within() -> Column:
    """Whether an event is of a partition's arrivals `_first` to `_last`."""
    here = (F.col("topic") == F.col("_topic")) & (F.col("partition") == F.col("_partition"))
    return here & F.col("arrival").between(F.col("_first"), F.col("_last"))
