"""`shadow cutover`: the tables of one source are fed by the other's topic from here on, and stay as they are.

The source goes on with its own landing, changelog and snapshots, and reads another partition from the record on that
begins what it lacks (seam.py). One commit of the ledger says so (landing/ended.py): before it nothing is changed,
behind it all is. As both feeds have one format and the same options, all that is kept of the source can still be
decoded, explained, erased and told anew.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import SparkSession

from cdc_platform.changes import in_force
from cdc_platform.config import Config
from cdc_platform.config.shadow import Shadow
from cdc_platform.lake import delta_table, folders, queries, stores
from cdc_platform.lake.writer_lock import source_lock
from cdc_platform.landing import ended, positions
from cdc_platform.results import Stopwatch
from cdc_platform.shadow import pairing, point, ready, seam
from cdc_platform.shadow.handover import Handover
from cdc_platform.shadow.point import Common
from cdc_platform.shadow.ready import Way
from cdc_platform.shadow.seam import Seam
from cdc_platform.snapshots import state
from cdc_platform.spark import delta_sql
from cdc_platform.tables import ERASURES, LOADED, OFFSET_LEDGER, TABLE_STATE, TOPICS, Name


@dataclass(frozen=True)
class Cutover(Way):
    """By the other's topic."""

    def plan(self) -> dict[str, Any]:
        """What would be done, as far as both have come and by the last comparison: of, by, done (whether it is done
        already), and where it isn't old, new (topic/partition), offset, gtid, and Last.data; topics: what cdc.yaml is
        to name then. Changes nothing. Raises ShadowRefused."""
        if (before := self._done()) is not None:
            return before
        self._check_config()
        ready.check_lake(self.config, self.pair)
        last = ready.last(self.config, self.pair)
        return {**self._result(self._seam(), done=False), **last.data()}

    def do(self, spark: SparkSession) -> dict[str, Any]:
        """Brings both up to date, compares all of their tables, and does it. Returns what `plan` does, with seconds.
        Raises ShadowRefused, RunInProgress, and what the stages raise."""
        watch = Stopwatch()
        with ExitStack() as stack:
            leases = [(s, stack.enter_context(source_lock(self.config, s))) for s in (self.of, self.by)]
            if (before := self._done()) is not None:
                return {**before, "seconds": watch.seconds}
            self._check_config()
            rows = ready.bring(spark, self.config, self.pair, leases, self.told)
            at = self._seam()
            self._check_up_to(spark, rows, at)
            self._note(at)
        return {**self._result(at, done=True), "seconds": watch.seconds}

    # -- whether it can be done ----------------------------------------------------------------------------

    def _check_config(self) -> None:
        """Raises ShadowRefused where what is kept of the one feed would mean something else of the other."""
        of, by = self.of, self.by
        if of.format != by.format:
            problem = f"{of.name} is {of.format}, {by.name} {by.format}: what was landed couldn't be decoded any more"
            raise self.refused(problem, "--exchange")
        if in_force.values(of) != in_force.values(by):
            raise self.refused("the sources have different options", "the same `options` for both", "--exchange")
        if self.config.kafka_properties(of) != self.config.kafka_properties(by):
            raise self.refused("the sources have different `kafka` settings", "the same `kafka` for both", "--exchange")
        ready.check_pair(self.pair)

    def _seam(self) -> Seam:
        at = seam.find(self.config, self.pair)
        topic, partition = at.new
        here = [s for s in positions.in_kafka(self.config, self.by) if (s.topic, s.partition) == at.new]
        if not here or here[0].begin > at.offset or {s.topic for s in here} != {topic}:
            raise self.refused(f"Kafka has no longer what stands at {topic}/{partition}/{at.offset}", ready.RUN)
        if erased := self._erased_from(at):
            problem = f"{topic}/{partition}/{erased} holds what was erased of {self.by.name}, and would land once more"
            raise self.refused(problem, ready.RUN)
        return at

    def _erased_from(self, at: Seam) -> int | None:
        """The last record behind the seam that was erased; it is in Kafka still."""
        rows = queries.query(
            f"SELECT records FROM t WHERE source = {queries.text(self.by.name)} AND stage = 'begun'",
            t=ERASURES.at(stores.lake(self.config)),
        )
        told = [r for row in rows or [] for r in row["records"] or ()]
        there = [r["offset"] for r in told if (r["topic"], r["partition"]) == at.new]
        return max((offset for offset in there if offset >= at.offset), default=None)

    def _check_up_to(self, spark: SparkSession, rows: dict[Name, dict[str, Any]], at: Seam) -> None:
        """Raises ShadowRefused where a row isn't the same behind the last transaction of both: what either lacks of
        that stands before the seam, and would never come. rows: of a comparison at an earlier point."""
        if not (tables := ready.unsettled(rows)):
            return
        common = point.up_to(self.config, self.pair, at.gtid, at.new, at.offset)
        open_ = ready.unsettled(ready.check_unsettled(spark, self.config, self.pair, tables, common))
        states = state.now(TABLE_STATE.at(stores.lake(self.config)), self.by)
        for one in pairing.tables(self.config, self.pair):
            if one.name in open_ and one.by and (why := self._in_part(one.by, states[one.by], common)):
                problem = f"rows of {'.'.join(one.name)} aren't the same behind {at.gtid}, and {why}"
                raise self.refused(problem, ready.RUN, "--exchange")

    def _in_part(self, name: Name, told: dict[str, Any], common: Common) -> str | None:
        """Why what is newer in `by` may leave a row of a table as it is in `of`, be it in part. Whole images and
        deletes don't."""
        if told["partial"]:
            return f"{self.by.name} tells parts of rows"
        assert common.bounds is not None
        forgotten = queries.query(
            f"SELECT 1 FROM t WHERE scope <> 'row' AND {common.bounds[1].beyond('_cdc_order')} LIMIT 1",
            t=folders.tombstones(stores.lake(self.config), self.by.name, name),
        )
        return f"{self.by.name} has forgotten which were deleted since" if forgotten else None

    # -- doing it ------------------------------------------------------------------------------------------

    def _note(self, at: Seam) -> None:
        """The topic's id first: that of a topic that is made again is another."""
        lake, (topic, _) = stores.lake(self.config), at.new
        [state] = [s for s in positions.in_kafka(self.config, self.by) if (s.topic, s.partition) == at.new]
        known = queries.query(
            f"SELECT topic_id FROM t WHERE source = {queries.text(self.of.name)} AND topic = {queries.text(topic)}",
            t=TOPICS.at(lake),
        )
        now, ids = positions.position(OFFSET_LEDGER.at(lake), self.of), [r["topic_id"] for r in known or []]
        base = positions.base_here(now, state, ids)
        if state.topic_id and state.topic_id not in ids:
            said = {"source": self.of.name, "topic": topic, "seen_at": datetime.now(UTC)}
            delta_table.append_rows(TOPICS.at(lake), [{**said, "topic_id": state.topic_id}])
        numbering = {} if base == now.bases.get(at.new, 0) else {"base": base, "topic_id": state.topic_id}
        delta_sql.ensure(OFFSET_LEDGER, OFFSET_LEDGER.at(lake))
        offset = at.offset - state.base + base
        ended.take_over(self.config, self.of, now.batch + 1, now.landed, at.new, offset, numbering)

    def _done(self) -> dict[str, Any] | None:
        """What is told where `by`'s partition is read by `of` already."""
        if not ended.ended(self.config, self.of):
            return None
        mine = positions.position(OFFSET_LEDGER.at(stores.lake(self.config)), self.of).landed
        if not mine.keys() & {w for w in queries.landed(self.config, self.by) if w[0] != LOADED}:
            return None
        topics = sorted({topic for topic, _ in mine})
        return {"of": self.of.name, "by": self.by.name, "done": True, "topics": topics}

    def _result(self, at: Seam, *, done: bool) -> dict[str, Any]:
        return {
            **{"of": self.of.name, "by": self.by.name, "done": done, "topics": [at.new[0]], "gtid": at.gtid},
            **{"old": f"{at.old[0]}/{at.old[1]}", "new": f"{at.new[0]}/{at.new[1]}", "offset": at.offset},
        }


def way(config: Config, pair: Shadow, told: Callable[[str], None], *, exchange: bool = False) -> Cutover | Handover:
    """How one feed takes the other's place: by its topic, or by its tables (`exchange`), as feeds of two formats only
    can."""
    two = config.source(pair.of).format != config.source(pair.by).format
    return (Handover if two or exchange else Cutover)(config, pair, told)
