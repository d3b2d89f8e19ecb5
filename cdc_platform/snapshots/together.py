"""Batches of few plain changes (full_images.py) for each of some tables, newer than anything their snapshots hold, or
rows that came into tables without a key: one Spark job brings all of them up to date, and their logs are committed side
by side.

A table by itself takes some jobs of Spark's, 0.4 s, however few its changes are. What a table has that isn't kept to
here goes its own way (table_batch.py), which gives the same: a larger batch, other columns, a value that Spark has to
read, a table that somebody else changed.
"""

import heapq
import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from itertools import count
from typing import Any, NamedTuple, TypeVar

from pyspark.sql.types import StructType

from cdc_platform.errors import TableStopped
from cdc_platform.lake import commits, delta_table, looks, new_tables, stores
from cdc_platform.lake.commits import Live, Marked
from cdc_platform.lake.data_files import Written, units
from cdc_platform.lake.looks import Look
from cdc_platform.snapshots import partitions, state
from cdc_platform.snapshots.apply import append as loads
from cdc_platform.snapshots.apply import keyless, prepare, replace_rows
from cdc_platform.snapshots.apply.append import ROWS, TOMBSTONES, Columns, Load
from cdc_platform.snapshots.apply.replace_rows import DataFile
from cdc_platform.snapshots.apply.together_tasks import Piece, Task, Told, done, given
from cdc_platform.snapshots.batch_tables import AffectedTable
from cdc_platform.snapshots.reduce.full_images import FullImages
from cdc_platform.snapshots.reduce.latest_by_key import Numbered
from cdc_platform.snapshots.schema import shapes
from cdc_platform.snapshots.schema.columns import TableColumn, columns_of
from cdc_platform.snapshots.schema.features import Features
from cdc_platform.snapshots.table_batch import Work
from cdc_platform.snapshots.target import Target
from cdc_platform.spark import arrow_tasks, delta_sql
from cdc_platform.spark.cores import cores_of
from cdc_platform.tables import ROW_ADDRESS, Name

log = logging.getLogger(__name__)
T = TypeVar("T")

_FEW = 50_000
"""Changes of a table in a batch that one task takes; more are divided among some (full_images.py)."""
_TASK_CHANGES, _TASK_TABLES = 100_000, 8
"""Changes that a task takes at most; tables that are worth another one."""
_LOOKED_THROUGH = 64 << 20
"""Bytes of a snapshot's files that one task looks through for the keys of a batch."""
_ADDRESS_BYTES = 16
"""What is read of a row of a table without a key."""
_SMALL_FILE = 8 << 20
"""Files of up to so many bytes are put together with a batch's rows when there are many of them."""


class Asked(NamedTuple):
    """A table of a batch: its changes, the list of its columns, its state before (None: it is new, or made anew)."""

    touched: AffectedTable
    columns: str | None
    before: Mapping[str, Any] | None
    anew: bool = False


class _Prepared(NamedTuple):
    """A table that can be brought up to date here, as it was looked at."""

    asked: Asked
    plain: FullImages
    live: Live
    piece: Piece


def bring_up(work: Work, asked: list[Asked]) -> dict[Name, state.Outcome]:
    """Outcomes of those tables that could be brought up to date here. May be repeated."""
    if work.anew:
        return {}
    spark = work.changes.spark
    each = [partial(_prepared, work, a) for a in asked]
    prepared = [p for p in _side_by_side(work, each) if p is not None]
    if not prepared:
        return {}
    tasks = _tasks(prepared, cores_of(spark))
    told: list[Told] = [t for some in arrow_tasks.run(spark, tasks, given, done, {}).told for t in some]
    ended = [partial(_committed, work, prepared[t["table"]], t) for t in told]
    outcomes = [o for o in _side_by_side(work, ended) if o is not None]
    return {o.name: o for o in outcomes}


def is_few(plain: FullImages, touched: AffectedTable) -> bool:
    """Whether one task takes a table's changes."""
    return 0 < plain.figures.changes == touched.changes <= _FEW


def _side_by_side(work: Work, pieces: list[Callable[[], T]]) -> list[T]:
    return delta_sql.ask_parallel(stores.lake(work.config), pieces)


def _prepared(work: Work, asked: Asked) -> _Prepared | None:
    """None: the table has to go its own way."""
    touched, plain = asked.touched, work.plain.get(asked.touched.name)
    if asked.columns is None or not (plain and is_few(plain, touched)):
        return None
    unsettled, emptied = work.came.unsettled(touched.low[1]), plain.figures.truncated_at is not None
    if (unsettled and (work.came.mixed or emptied)) or (emptied and not plain.table.keys):  # partitions.check; keyless
        return None
    with suppress(TableStopped):
        columns = columns_of(work.source, touched.name, asked.columns)
        target = work.target(touched.name)
        look = _looked(work, columns, asked, plain, unplaced=unsettled)
        piece = _piece(target, columns, plain, look) if look is not None else None
        if piece is not None and unsettled and plain.table.keys:
            high = asked.before and asked.before["high_order"]
            unplaced = partitions.unplaced(target, touched.low, tuple(map(int, high.values())) if high else None)
            piece = unplaced and replace(piece, unplaced=unplaced)
        return _Prepared(asked, plain, look.live, piece) if look and look.live and piece else None
    return None


def _looked(work: Work, columns: list[TableColumn], asked: Asked, plain: FullImages, *, unplaced: bool) -> Look | None:
    """The snapshot as it is, made if it isn't there. None: it isn't as it has to be, or may hold something newer.
    unplaced: what has the same source time will be looked at (partitions.unplaced)."""
    target = work.target(asked.touched.name)
    look = looks.look(target.snapshot)
    if look is None:
        gone = asked.before is not None or delta_table.exists(target.tombstones)  # its folder was lost
        return None if gone else prepare.make(target, columns)
    look = prepare.of_key(work.changes.spark, look, target, columns) if _fits(target, look, columns) else None
    if look is None or look.live is None:
        return None
    if asked.before is None:
        dug = not asked.anew and delta_table.exists(target.tombstones)
        return None if look.live.adds or dug else look
    low = tuple(map(int, plain.figures.low_order))
    if not plain.table.keys:
        doubted = asked.before["reason"] is not None
        return None if doubted or not keyless.only_add(target, None if unplaced else low) else look
    if not (high := asked.before["high_order"]):
        return None
    there = tuple(high.values())
    return look if (there[:3] <= low[:3] if unplaced else there < low) else None


def _fits(target: Target, look: Look, columns: list[TableColumn]) -> bool:
    """Whether a snapshot has these columns, and what it has besides is kept to here."""
    there = _types(look.schema)
    if any(there.get(c.name.lower()) != (c.spark, c.comment) for c in columns):
        return False
    now = Features.seen(look)
    return not (target.for_any and (now.mapping or now.vectors))


@lru_cache(maxsize=4096)
def _types(schema: str) -> dict[str, tuple[str, str]]:
    """Spark's types and comments by the columns' names in small letters. schema: as Look has it."""
    fields = StructType.fromJson(json.loads(schema)).fields
    return {f.name.lower(): (f.dataType.simpleString(), shapes.comment_of(f)) for f in fields}


def _piece(target: Target, columns: list[TableColumn], plain: FullImages, look: Look) -> Piece | None:
    rows, emptied = loads.rows_of(look.fields, columns), plain.figures.truncated_at
    graves = _graves(target, columns) if plain.figures.deletes or emptied else ()
    if rows is None or graves is None:
        return None
    sinks = {ROWS: loads.sink(target.snapshot, rows)}
    sinks |= {TOMBSTONES: loads.sink(target.tombstones, graves)} if graves else {}
    keys, by = _apart(rows, plain)
    chosen = ((), frozenset(), frozenset()) if emptied else _files(target, look, by, plain)
    if chosen is None:
        return None
    files, rewritten, always = chosen
    since = tuple(map(int, emptied)) if emptied else None
    return Piece(plain.table, Load(rows, graves), sinks, keys, by, files, rewritten, always, since)


def _apart(rows: Columns, plain: FullImages) -> tuple[Columns, str]:
    """What tells a snapshot's rows apart, and by which of it its files are looked through (Piece.by): that of whose
    values the lowest and the highest are known."""
    given_by = {given: (field.remove_metadata(), type_, given) for field, type_, given in rows}
    if keys := tuple(given_by[f"t{i}"] for i, _ in enumerate(plain.table.keys)):
        return keys, keys[0][0].name
    address, _, _ = given_by[shapes.ADDRESS]
    offset = address.type.field(ROW_ADDRESS.names.index("offset"))
    return (given_by[shapes.ADDRESS],), f"{address.name}.{offset.name}"


def _graves(target: Target, columns: list[TableColumn]) -> Columns | None:
    """Columns of the tombstones' files; there is a table of them then."""
    look = looks.look(target.tombstones) or new_tables.created(target.tombstones, shapes.tombstones(columns))
    return look and loads.tombstones_of(look.fields, columns)


def _files(
    target: Target, look: Look, key: str, plain: FullImages
) -> tuple[tuple[DataFile, ...], frozenset[int], frozenset[int]] | None:
    """Files that are looked through; those of them that are written anew if a row goes, and those that are in any
    case. None: too much for one task, or there are many large ones, which Spark puts together."""
    live, ends = look.live, (plain.figures.low_key, plain.figures.high_key)
    if live is None:
        return None
    every = replace_rows.files_of(target.snapshot, live, key, (None, None))
    small = [f for f in every if f.bytes <= _SMALL_FILE]
    if len(every) - len(small) >= prepare.MANY_FILES:
        return None
    always = small if len(small) >= prepare.MANY_FILES else []
    met = {f.number for f in replace_rows.files_of(target.snapshot, live, key, ends)} | {f.number for f in always}
    files = [f for f in every if f.number in met]
    if not plain.table.keys:  # no row goes, but where a batch is done again
        read = sum(f.rows for f in files) * _ADDRESS_BYTES + sum(f.bytes for f in always)
        told = frozenset(f.number for f in files), frozenset(f.number for f in always)
        return (tuple(files), *told) if read <= _LOOKED_THROUGH else None
    wanted, enabled = prepare.vector_use_of(target, Features.seen(look))
    if sum(f.bytes for f in files) > _LOOKED_THROUGH or (wanted and not enabled and met - {f.number for f in always}):
        return None
    rewritten = always if wanted else files
    return tuple(files), frozenset(f.number for f in rewritten), frozenset(f.number for f in always)


def _tasks(prepared: list[_Prepared], cores: int) -> list[Task]:
    """The tables shared out: each task has about as much to do."""
    every = list(dict.fromkeys(file for p in prepared for file in p.plain.files))
    whole = dict(zip(every, units(every, whole=True), strict=True))
    weights = [p.plain.figures.changes + 500 + sum(f.bytes for f in p.piece.files) // 1000 for p in prepared]
    changes = sum(p.plain.figures.changes for p in prepared)
    number = max(-(-changes // _TASK_CHANGES), min(cores, -(-len(prepared) // _TASK_TABLES)))
    shares: list[list[int]] = [[] for _ in range(number)]
    tie = count()
    busy = [(0, next(tie), share) for share in shares]
    for i in sorted(range(len(prepared)), key=lambda i: -weights[i]):
        weight, _, share = busy[0]
        share.append(i)
        heapq.heapreplace(busy, (weight + weights[i], next(tie), share))
    return [_task(prepared, share, whole) for share in shares if share]


def _task(prepared: list[_Prepared], share: list[int], whole: Mapping[Any, Any]) -> Task:
    files = dict.fromkeys(file for i in share for file in prepared[i].plain.files)
    number = {file: n for n, file in enumerate(files)}
    numbered = tuple(Numbered(n, whole[file]) for file, n in number.items())
    pieces = ((i, prepared[i].piece, frozenset(number[f] for f in prepared[i].plain.files)) for i in share)
    return Task(numbered, tuple(pieces))


def _committed(work: Work, prepared: _Prepared, told: Told) -> state.Outcome | None:
    """Names what a task wrote in the table's log. None: it wasn't done, or another commit came in between."""
    touched, plain, live, piece = prepared.asked.touched, prepared.plain, prepared.live, prepared.piece
    if told["why"] is not None:
        log.info("%s goes its own way: %s", ".".join(touched.name), told["why"])
        return None
    written = {name: [Written(*file)] for name, file in told["written"].items()}
    if stones := written.get(TOMBSTONES):
        commits.append_files(piece.sinks[TOMBSTONES], stones, (work.app, work.batch_id), looked_at=True)
    rows, gone = written.get(ROWS, []), told["gone"]
    if piece.since is not None:  # it is newer than all that is there
        gone = [[i, None, n] for i, n in enumerate(commits.counted(live._replace(adds=[add])) for add in live.adds)]
    marked = [Marked(live.adds[number], vector) for number, vector, _ in gone]
    if rows or gone:
        said = replace_rows.history(plain.figures.changes, sum(n for _, _, n in gone), len(rows))
        if not commits.commit(piece.sinks[ROWS].table, live, rows, marked, said):
            return None
    order = plain.figures.high_order if plain.table.keys else None  # of tables without one tombstones tell (keyless.py)
    there = commits.counted_after(live, rows, marked)
    return state.Outcome(touched.name, "live", None, touched.changes, 0, high_order=order, rows=there)
