"""Row events, one by one, onto tables in memory; compared with the database's own SELECT around every DDL statement."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from cdc_platform.feeds.shop import Table
from cdc_platform.feeds.workload import Ddl, Transaction
from tests.oracle.catalog import Rows, Text
from tests.oracle.feeds import Sent
from tests.oracle.session import DB, Checkpoint, Done, Told

Image = dict[str, Text]


def segments(
    transactions: Iterable[Transaction], told: Told
) -> Iterator[tuple[list[Transaction], Done | Checkpoint | None]]:
    """Transactions up to each DDL statement or checkpoint (that one included), and what is known there."""
    by_number = {int(gtid.rpartition("-")[2]): done for gtid, done in told.ddl.items()}
    checkpoints = {int(c.gtid.rpartition("-")[2]): c for c in told.checkpoints}
    part: list[Transaction] = []
    for tx in transactions:
        part.append(tx)
        number = int(tx.gtid.rpartition(":")[2])
        known = by_number.get(number) or checkpoints.get(number)
        if known is not None:
            yield part, known
            part = []
    if part:
        yield part, None


@dataclass(slots=True)
class Replay:
    """The tables as row events tell them; a table's DDL effects come from the oracle itself (`Done`)."""

    as_sent: Sent
    tables: dict[str, Table] = field(default_factory=dict)
    rows: dict[str, Counter] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def row(self, name: str, before: Image | None, after: Image | None, what: str) -> None:
        """One change. An update without one of its images (it came in two parts) is two."""
        if name not in self.tables:
            self.problems.append(f"{what}: {name} isn't there")
            return
        live = self.rows[name]
        for image, count in ((before, -1), (after, 1)):
            if image is None:
                continue
            frozen = tuple(sorted(image.items()))
            if count < 0 and not live[frozen]:
                self._note(f"{what}: {name} holds no such row", image, live)
            live[frozen] += count
            if not live[frozen]:
                del live[frozen]

    def _note(self, what: str, image: Image, live: Counter) -> None:
        key = self.tables[what.split(": ")[1].partition(" holds")[0]].key
        near = [dict(r) for r in live if key and all(dict(r).get(k) == image.get(k) for k in key)]
        off = (
            {k: (v, near[0].get(k, "absent")) for k, v in image.items() if near[0].get(k, "absent") != v}
            if near
            else image
        )
        self.problems.append(f"{what}: {str(off)[:600]}")

    def reached(self, known: Done | Checkpoint | None) -> None:
        """Compares with SELECT, then takes the DDL statement's effect over."""
        if isinstance(known, Checkpoint):
            for name, (_, rows) in known.tables.items():
                self._compare(name, rows, f"at {known.gtid}")
        elif known is not None:
            for name, rows in known.before.items():
                self._compare(name, rows, f"before {known.gtid} {known.kind}")
            for change in known.changes:
                name = change.old[1] if change.old else change.name
                self.tables.pop(name, None)
                self.rows.pop(name, None)
                if change.table is not None:
                    self.tables[change.name] = change.table
            for name, rows in known.after.items():
                self.rows[name] = self._wanted(name, rows)

    def _wanted(self, name: str, rows: Rows) -> Counter:
        table = self.tables[name]
        sent = [{c.name: self.as_sent(c, row[c.name]) for c in table.columns} for row in rows]
        return Counter(tuple(sorted(row.items())) for row in sent)

    def _compare(self, name: str, rows: Rows, where: str) -> None:
        want, got = self._wanted(name, rows), self.rows[name]
        for row in want - got:
            self._note(f"{where}: {name} holds not enough", dict(row), got - want)
        if extra := got - want:
            self.problems.append(
                f"{where}: {name}: {sum(extra.values())} rows too many, like {str(next(iter(extra)))[:300]}"
            )
        self.rows[name] = want  # each fault is told once


def source_events(tx: Transaction, canonical: Any) -> Iterator[tuple[str, Image | None, Image | None]]:
    """The binlog's own row changes in canonical text."""
    for change in tx.events:
        images = [
            None if row is None else {c.name: canonical(c, row[c.name]) for c in change.table.columns}
            for row in (change.before, change.after)
        ]
        yield change.table.name, images[0], images[1]


__all__ = ["DB", "Ddl", "Replay", "segments", "source_events"]
