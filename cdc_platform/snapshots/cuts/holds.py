"""What has come, or was lost, and isn't in the snapshots."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from cdc_platform.config import Config, Source
from cdc_platform.formats import FORMATS
from cdc_platform.lake import queries, renames, sequences, stores
from cdc_platform.lake.sequences import Gap, Lost
from cdc_platform.lake.watermarks import Where
from cdc_platform.tables import QUARANTINE, WAITING, Name, name_in


@dataclass(frozen=True, slots=True)
class Hold:
    """A message, or a range of them, that isn't in a snapshot: its first offset, and why."""

    where: Where
    offset: int
    reason: str


class Missing(NamedTuple):
    """all: what no table has, of each partition the first. tables: what a table alone lacks; the first one says why."""

    all: list[Hold]
    tables: Mapping[Name, Sequence[Hold]]


def missing(config: Config, source: Source, live: Sequence[Name], gone: Sequence[Name] = ()) -> Missing:
    """What a source's snapshots lack. live: those that may lack what was lost; gone: those of dropped tables."""
    named, unnamed = _quarantined(config, source, live, gone)
    gaps, lost = sequences.of_tables(config, source, live), sequences.lost_of_tables(config, source, live)
    told = {
        n: [*named.get(n, ()), *map(_of_gap, gaps.get(n, ())), *(_of_lost(lost[n]) if n in lost else ())]
        for n in named.keys() | gaps.keys() | lost.keys()
    }
    return Missing([*first(unnamed), *_waiting(config, source)], told)


def first(held: Iterable[Hold]) -> list[Hold]:
    """Of each partition the earliest."""
    return list({h.where: h for h in sorted(held, key=lambda h: -h.offset)}.values())


def _of_gap(gap: Gap) -> Hold:
    """From behind the sender's last record on: what other senders' records say that stand before the next tells nothing
    of it."""
    return Hold((gap.topic, gap.partition), gap.before + 1, gap.text)


def _of_lost(lost: Lost) -> list[Hold]:
    return [Hold(where, offset, lost.text) for where, offset in lost.first.items()]


def _quarantined(
    config: Config, source: Source, live: Sequence[Name], gone: Sequence[Name]
) -> tuple[dict[Name, list[Hold]], list[Hold]]:
    """Messages in quarantine by the tables that they may be of, and those that name none."""
    path = QUARANTINE.at(stores.lake(config))
    place = f'topic, "partition", db, {queries.schema_of(path)}, "table"'
    rows = queries.query(
        f'SELECT {place}, min("offset") AS "offset", last_value(reason ORDER BY quarantined_at) AS reason FROM t '
        f"WHERE source = '{source.name}' AND resolved_at IS NULL GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5",
        t=path,
    )
    renamed = renames.renames(config, source) if rows else {}
    named: dict[Name, list[Hold]] = {}
    unnamed = []
    for r in rows or []:
        where, why = (r["topic"], r["partition"]), f"quarantine holds {r['topic']}/{r['partition']}/{r['offset']}"
        if (name := name_in(r)) is None:
            why = f"{why}, which names no table: {r['reason']}"
            unnamed.append(Hold(where, r["offset"], why))
        elif source.tables.wanted(*name):
            own = source.tables.routed(*name)
            others = renames.snapshots_of(source, name, renamed, live) - {own}
            for snapshot in sorted(others | ({own} if not others or own not in gone else set())):
                under = f" under the name {'.'.join(name)}" if snapshot in others else ""
                hold = Hold(where, r["offset"], f"{why}{under}: {r['reason']}")
                named.setdefault(snapshot, []).append(hold)
    return named, unnamed


def _waiting(config: Config, source: Source) -> list[Hold]:
    """Of each partition the first message whose parts haven't all come."""
    split = FORMATS[source.format].part is not None
    if not split or not any(r["waiting"] for r in queries.ledger(config, [source])):
        return []
    rows = queries.query(
        'SELECT topic, "partition", min("offset") AS "offset" FROM t '
        'WHERE batch = (SELECT max(batch) FROM t) GROUP BY topic, "partition"',
        t=WAITING.at(stores.lake(config), source=source.name),
    )
    return [Hold((r["topic"], r["partition"]), r["offset"], _waits(r)) for r in rows or []]


def _waits(r: dict[str, Any]) -> str:
    return f"the message at {r['topic']}/{r['partition']}/{r['offset']} waits for its other parts"
