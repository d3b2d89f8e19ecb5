"""What the table LOG_EPOCHS keeps of a source's order (changelog/epochs.py)."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from cdc_platform.changelog.epochs import NEVER, Epoch, Log, Partition, Place, Segment, Where, loaded
from cdc_platform.changes.file_stats import NO_POSITION
from cdc_platform.config import Config, Source
from cdc_platform.lake import delta_table, stores
from cdc_platform.lake.store import Store
from cdc_platform.tables import LINEAGES, LOG_EPOCHS

_LOW, _HIGH = (f"named_struct('file', {e}_file, 'pos', {e}_pos)" for e in ("low", "high"))


def now(config: Config, source: Source) -> tuple[Log, list[Segment]]:
    """`known` by now; LOG_EPOCHS is there."""
    lake = stores.lake(config)
    return known({"epochs": LOG_EPOCHS.at(lake), "lineages": LINEAGES.at(lake)}, source, None)


def known(paths: dict[str, Store], source: Source, batch: int | None) -> tuple[Log, list[Segment]]:
    """The order before a batch (None: by now), and the segments that led there: of each partition and epoch one, and
    every replay. `paths`: of LOG_EPOCHS and LINEAGES."""
    before = "" if batch is None else f" AND batch < {batch}"
    of = f"FROM {{epochs}} WHERE source = '{source.name}'{before}"
    kept = 'topic, "partition", epoch'
    groups = delta_table.ask(
        f"SELECT {kept}, min(first) AS first, max(last) AS last, min({_LOW}) AS low, max({_HIGH}) AS high, "
        f"array_agg(DISTINCT servers) AS servers, min(since) AS since, "
        f"max(until) AS until {of} AND NOT replay GROUP BY {kept}",
        epochs=paths["epochs"],
    )
    again = delta_table.ask(
        f"SELECT {kept}, first, last, {_LOW} AS low, {_HIGH} AS high, NULL AS servers, NULL AS since, NULL AS until "
        f"{of} AND replay",
        epochs=paths["epochs"],
    )
    ends = delta_table.ask(
        f"SELECT topic, \"partition\", max(named_struct('last', last, 'epoch', epoch, 'at', {_HIGH}, "
        "'replay', replay)) AS newest "
        f'{of} GROUP BY topic, "partition"',
        epochs=paths["epochs"],
    )
    log = _of_lineages(paths, source)
    logs, replays = ([_segment(r, replay=x) for r in rows] for rows, x in ((groups, False), (again, True)))
    for s in (s for s in logs if not loaded(s.where)):
        log.reach(s)
        log.epochs.setdefault(s.epoch, Epoch(s.low, s.high)).add(s)
    for s in sorted((*logs, *replays), key=lambda s: s.first):
        log.starts.setdefault(s.where, []).append((s.first, s.epoch))
    for r in ends:
        where, newest = (r["topic"], r["partition"]), r["newest"]
        at, epoch = _position(newest["at"]), newest["epoch"]
        _, high = log.spans.get(where, {}).get(epoch, (at, at))  # of a lake of before a replay may be all there is
        log.partitions[where] = Partition(epoch, high, at, newest["last"], newest["replay"])
    return log, [*logs, *replays]


def clocks(path: Store, source: Source, batch: int | None, *, every: bool) -> dict[Where, list[tuple[int, int]]]:
    """The latest source time (ms) in each partition before a batch (None: by now), from the arrival -1 on. every: of
    each batch, from the arrival of its first event on."""
    before = "" if batch is None else f" AND batch < {batch}"
    of = f"FROM {{epochs}} WHERE source = '{source.name}' AND clock IS NOT NULL{before} GROUP BY topic, \"partition\""
    kept = 'topic, "partition", min(first) AS first, max(last) AS last, max(clock) AS clock'
    rows = delta_table.ask(f"SELECT {kept} {of}{', batch' if every else ''}", epochs=path)
    found: dict[Where, list[tuple[int, int]]] = {}
    for r in sorted(rows, key=lambda r: r["last"]):
        at = found.setdefault((r["topic"], r["partition"]), [(-1, 0)])
        at.append((r["last"] + 1, max(r["clock"], at[-1][1])))
    return found if every else {where: [(-1, at[-1][1])] for where, at in found.items()}


def noted(path: Store, source: Source, batch: int) -> list[Segment] | None:
    """The segments of a batch that was begun before; None: none are kept."""
    rows = delta_table.ask(
        f'SELECT topic, "partition", epoch, replay, first, last, {_LOW} AS low, {_HIGH} AS high, '
        f"servers, since, until FROM {{epochs}} WHERE source = '{source.name}' AND batch = {batch}",
        epochs=path,
    )
    return [_segment({**r, "servers": [r["servers"]]}, replay=r["replay"]) for r in rows] or None


def _segment(row: dict[str, Any], *, replay: bool) -> Segment:
    where, servers = (row["topic"], row["partition"]), _flat(row["servers"])
    low, high = _position(row["low"]), _position(row["high"])
    since = NEVER if row["since"] is None else row["since"]
    until = -1 if row["until"] is None else row["until"]
    return Segment(where, row["first"], row["last"], row["epoch"], replay, low, high, servers, since, until)


def _flat(lists: list[list[str]] | None) -> frozenset[str]:
    return frozenset(s for some in lists or () for s in some or ())


def _position(of: dict[str, Any]) -> Place:
    return of["file"], int(of["pos"])


def _of_lineages(paths: dict[str, Store], source: Source) -> Log:
    """What a version before had noted: an epoch per server, in the order of their first appearance."""
    if not delta_table.exists(paths["lineages"]):
        return Log()
    rows = delta_table.ask(
        "SELECT lineage, epoch, max(CASE WHEN high_file IS NOT NULL "
        "THEN named_struct('file', high_file, 'pos', high_pos) END) AS high "
        f"FROM {{lineages}} WHERE source = '{source.name}' GROUP BY lineage, epoch",
        lineages=paths["lineages"],
    )
    if not rows:
        return Log()
    newest = max(r["epoch"] for r in rows)
    reached = [_position(r["high"]) for r in rows if r["epoch"] == newest and r["high"] is not None]
    servers = {r["lineage"] for r in rows if r["epoch"] == newest and r["lineage"]}
    of = Epoch(NO_POSITION, max(reached, default=NO_POSITION), servers)
    before: dict[str | None, int] = {}
    for r in sorted(rows, key=lambda r: r["epoch"]):
        before[r["lineage"]] = r["epoch"]
    return Log(epochs={newest: of}, before={None: newest, **before})


def note(path: Store, source: Source, batch: int, segments: list[Segment], clocks: Mapping[Where, int]) -> None:
    """Keeps a batch's segments, once, and the latest source time (ms) of each partition in it."""
    rows = [
        {
            "source": source.name,
            "batch": batch,
            "topic": s.where[0],
            "partition": s.where[1],
            **{"first": s.first, "last": s.last, "epoch": s.epoch, "replay": s.replay},
            **{"low_file": s.low[0], "low_pos": Decimal(s.low[1])},
            **{"high_file": s.high[0], "high_pos": Decimal(s.high[1])},
            "servers": sorted(s.servers),
            "since": None if s.since == NEVER else s.since,
            "until": None if s.until < 0 else s.until,
            "clock": clocks.get(s.where),
        }
        for s in segments
    ]
    delta_table.append_rows(path, rows, of=f"source = '{source.name}' AND batch = {batch}")
