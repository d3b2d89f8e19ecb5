"""Where one feed can go on for another: behind the last transaction that both have, found in what was decoded of
either. No Spark here.

Both come by one partition each, in which a capture sends its log in order (docs/design.md, order), and both tell
GTIDs and places in the binlog. Only what came by these two counts: rows that the platform loaded have offsets of their
own, and the GTID of the view that they were read in. The transaction is the last one of which `of` has anything. If
`by` has it at the same place of a binlog of the same server, both read one log: what stands behind it in `by` comes
behind it in the log, and has a higher place than all that `of` has. If `by` has as many rows of it, and something
behind it, `of` has all of it. So with the record behind it begins what `of` lacks, and nothing that it has.
"""

from dataclasses import dataclass
from typing import Any

from cdc_platform.changelog import log_epochs
from cdc_platform.changelog.epochs import Log, loaded
from cdc_platform.config import Config, Source
from cdc_platform.config.shadow import Shadow
from cdc_platform.formats import FORMATS
from cdc_platform.lake import delta_table, stores
from cdc_platform.lake.queries import text
from cdc_platform.lake.store import Store
from cdc_platform.landing.ended import Where
from cdc_platform.shadow import point
from cdc_platform.shadow.errors import ShadowRefused
from cdc_platform.tables import CHANGES, ENVELOPES

_LATER = "`cdc-platform run`, then this once more"
_SOLID = "kind IN ('row', 'ddl')"
_NEAR = 10_000
"""The order of the transactions in so many of the last offsets is compared."""


@dataclass(frozen=True, slots=True)
class Seam:
    """old: the partition that `of` comes by; new: the one that takes its place, from `offset` on; gtid: of the last
    transaction that both have."""

    old: Where
    new: Where
    offset: int
    gtid: str


def find(config: Config, pair: Shadow) -> Seam:
    """Both are decoded and taken up as far as they have landed. Raises ShadowRefused where there is none that is
    certain."""
    return _Search(config, pair, config.source(pair.of), config.source(pair.by)).find()


@dataclass(frozen=True, slots=True)
class _Feed:
    """What was decoded of one partition."""

    where: Where
    changes: Store

    def ask(self, sql: str) -> list[dict[str, Any]]:
        """Rows of a query over it, `{t}`."""
        return delta_table.ask(sql.replace("{t}", f"(SELECT * FROM {{t}} WHERE {_by(self.where)})"), t=self.changes)


@dataclass(frozen=True, slots=True)
class _Search:
    config: Config
    pair: Shadow
    of: Source
    by: Source

    def find(self) -> Seam:
        old, new = (self._partition(s) for s in (self.of, self.by))
        of, by = self._feed(self.of, old), self._feed(self.by, new)
        last = self._last(of)
        theirs = _theirs(by, last["gtid"])
        if theirs["first"] is None:
            raise self._refused(f"{self.by.name} hasn't come to {last['gtid']}, which {self.of.name} has", _LATER)
        self._check_whole((of, by), last, theirs)
        self._check_order((of, by), last["gtid"])
        return Seam(old, new, self._behind(new, theirs["last"]), last["gtid"])

    def _refused(self, problem: str, *choices: str) -> ShadowRefused:
        return ShadowRefused(self.pair.of, self.pair.by, problem, choices)

    def _partition(self, source: Source) -> Where:
        there = point.partitions(self.config, source)
        if len(there) != 1:
            raise self._refused(f"{source.name} comes by {len(there)} partitions: these tell no common order")
        return there[0]

    def _feed(self, source: Source, where: Where) -> _Feed:
        return _Feed(where, CHANGES.at(stores.lake(self.config), format=source.format, source=source.name))

    def _last(self, of: _Feed) -> dict[str, Any]:
        """The last change or statement that came by `of`: gtid, file_no, binlog_pos, lineage."""
        rows = of.ask(
            f"SELECT {point.GTID} AS gtid, file_no, binlog_pos, lineage FROM {{t}} WHERE {_SOLID} "
            f'ORDER BY "offset" DESC, entry_index DESC, row_index DESC LIMIT 1'
        )
        if not rows or not rows[0]["gtid"] or rows[0]["file_no"] is None or rows[0]["binlog_pos"] is None:
            raise self._refused(f"the last change of {self.of.name} tells no GTID and place in the binlog")
        place = int(rows[0]["file_no"]), int(rows[0]["binlog_pos"])
        log = self._log()
        now = log.partitions.get(of.where)
        if now is None or now.replay or not now.epoch == max(log.epochs) or now.high != now.at or now.at < place:
            raise self._refused(f"{self.of.name} is sending again what it has sent", _LATER)
        if beyond := [n for n, e in log.epochs.items() if n != now.epoch and e.high >= place]:
            problem = f"an earlier log of {self.of.name} (epoch {beyond[0]}) had places beyond those of now"
            raise self._refused(problem)
        return rows[0]

    def _log(self) -> Log:
        log, _ = log_epochs.now(self.config, self.of)
        log.partitions = {w: p for w, p in log.partitions.items() if not loaded(w)}
        return log

    def _check_whole(self, feeds: tuple[_Feed, _Feed], last: dict[str, Any], theirs: dict[str, Any]) -> None:
        """Raises ShadowRefused where either may lack a part of the transaction, or another begins in its message, or
        it stands elsewhere in the logs."""
        gtid, mine = last["gtid"], f"{_SOLID} AND {point.GTID} = {text(last['gtid'])}"
        told = 'db, schema, "table", op, lineage, file_no, binlog_pos'
        sql = f"SELECT {told}, count(*) AS n FROM {{t}} WHERE {mine} GROUP BY {told} ORDER BY {told}"
        of, by = (feed.ask(sql) for feed in feeds)
        if of != by:
            problem = f"{gtid} has other rows, or stands at other places of the log, in {self.by.name}"
            raise self._refused(problem, _LATER)
        at, entry = theirs["last"], theirs["entry"] or 0
        after = f'("offset" > {at:d} OR ("offset" = {at:d} AND coalesce(entry_index, 0) > {entry:d}))'
        other = f"(gtid IS NULL OR {point.GTID} <> {text(gtid)})"
        ends = f"(kind = 'commit' AND {point.GTID} = {text(gtid)}) OR ({after} AND gtid <> '' AND {other})"
        if not feeds[1].ask(f"SELECT 1 AS there FROM {{t}} WHERE {ends} LIMIT 1"):
            raise self._refused(f"{self.by.name} doesn't tell yet that {gtid} is whole", _LATER)
        within = f"\"offset\" = {at:d} AND coalesce(entry_index, 0) > {entry:d} AND kind IN ('row', 'ddl', 'begin')"
        if feeds[1].ask(f"SELECT 1 AS there FROM {{t}} WHERE {within} LIMIT 1"):
            raise self._refused(
                f"in {self.by.name} another transaction begins in the message that {gtid} ends in", _LATER
            )

    def _check_order(self, feeds: tuple[_Feed, _Feed], gtid: str) -> None:
        """Raises ShadowRefused where the last transactions of both stand in different orders."""
        sql = (
            f'SELECT {point.GTID} AS gtid, max("offset") AS at, max(entry_index) AS entry FROM {{t}} WHERE {_SOLID} '
            f'AND gtid <> \'\' AND "offset" > (SELECT max("offset") FROM {{t}}) - {_NEAR} '
            "GROUP BY 1 ORDER BY at DESC, entry DESC"
        )
        of, by = ([r["gtid"] for r in feed.ask(sql)] for feed in feeds)
        by = by[by.index(gtid) :] if gtid in by else []
        common = set(of) & set(by)
        if [g for g in of if g in common] != [g for g in by if g in common] or gtid not in common:
            raise self._refused("the feeds have transactions in different orders: they don't read one log")

    def _behind(self, new: Where, last: int) -> int:
        """The offset behind the message in `by` that begins at one."""
        if FORMATS[self.by.format].part is None:
            return last + 1
        path = ENVELOPES.at(stores.lake(self.config), source=self.by.name)
        mine = _by(new)
        [told] = delta_table.ask(
            f'SELECT max(last_offset) AS at FROM {{t}} WHERE {mine} AND "offset" = {last:d}', t=path
        )
        offset = int(told["at"]) + 1
        apart = f'{mine} AND "offset" < {offset:d} AND last_offset >= {offset:d}'
        if delta_table.ask(f"SELECT 1 AS there FROM {{t}} WHERE {apart} LIMIT 1", t=path):
            raise self._refused("parts of several messages stand among each other there", _LATER)
        return offset


def _theirs(by: _Feed, gtid: str) -> dict[str, Any]:
    """Of the transaction in `by`: first and last offset; last place, as number of an entry, in that message."""
    mine = f"{point.GTID} = {text(gtid)}"
    [told] = by.ask(f'SELECT min("offset") AS first, max("offset") AS last FROM {{t}} WHERE {mine}')
    if told["first"] is None:
        return told
    here = f'"offset" = {told["last"]:d}'
    [entry] = by.ask(f"SELECT max(entry_index) AS entry FROM {{t}} WHERE {mine} AND {here}")
    return {**told, **entry}


def _by(where: Where) -> str:
    return f"topic = '{delta_table.topic(where[0])}' AND \"partition\" = {where[1]:d}"
