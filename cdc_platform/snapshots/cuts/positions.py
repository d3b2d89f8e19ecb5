"""Up to which position of its log, and which set of GTIDs, a source is complete: what its events say before the first
message that isn't in all snapshots.

A position is told of a source with one partition: those of several partitions or servers aren't compared. It is that of
the newest event, and all before it in the log is there. A set of GTIDs is told by checkpoints and commits of some
formats (`Format.gtid_sets`), mostly not by the newest event, so it is asked for on its own. Of several partitions it is
what their sets have in common.
"""

from collections.abc import Mapping
from typing import Any

from cdc_platform.config import Config, Source
from cdc_platform.formats import FORMATS
from cdc_platform.formats.contract import GtidSets
from cdc_platform.lake import delta_table, queries, stores
from cdc_platform.lake.watermarks import Complete, Where
from cdc_platform.mysql import gtids
from cdc_platform.tables import CHANGELOG, CONTROL_EVENTS, Table
from cdc_platform.units import count

_SHOWN = 3
_NEAR = 100_000
"""The newest event is looked for in so many offsets of a partition."""
_SETS = 20
"""So many events that say a set are looked at: those of one transaction say the same."""


def reached(config: Config, source: Source, ends: Mapping[Where, int], before: Complete | None) -> dict[str, Any]:
    """Columns of WATERMARKS. ends: partition → first offset that isn't complete. before: what was complete without all
    that isn't; of one partition it holds where nothing newer is near."""
    known = before if len(ends) == 1 else None
    file, pos, no_position = _position(config, source, ends)
    if file is None and known and known.binlog_file:
        file, pos, no_position = known.binlog_file, known.binlog_pos, None
    gtid, no_set = _gtids(config, source, ends)
    if gtid is None and known and known.gtid:
        gtid, no_set = known.gtid, None
    why = "; ".join(filter(None, (no_position, no_set))) or None
    return {"binlog_file": file, "binlog_pos": pos, "gtid": gtid, "position_reason": why}


def _position(config: Config, source: Source, ends: Mapping[Where, int]) -> tuple[str | None, Any, str | None]:
    """File and position, or why there is none."""
    if len(ends) != 1:
        told = "nothing has come yet"
        return (
            None,
            None,
            f"no position: its {count(len(ends), 'partition')} have positions of their own" if ends else told,
        )
    form = FORMATS[source.format]
    if not form.log_positions:
        return None, None, "no position: its format tells none"
    [(where, end)] = ends.items()
    columns, told = ("binlog_file", "binlog_pos"), "binlog_file IS NOT NULL"
    found = _newest(config, source, CONTROL_EVENTS, where, end, columns, told)
    if "row" in form.log_times and form.order == "arrival":  # rows of a load are of no place in the log
        found += _newest(config, source, CHANGELOG, where, end, columns, f"{told} AND op <> 'read'")
    newest = max(found, key=lambda r: (r["offset"], r["entry_index"]), default=None)
    if newest is None:
        return None, None, "no position: no event tells one"
    return newest["binlog_file"], newest["binlog_pos"], None


def _gtids(config: Config, source: Source, ends: Mapping[Where, int]) -> tuple[str | None, str | None]:
    """The set of GTIDs, or why there is none."""
    if (told := FORMATS[source.format].gtid_sets) is None:
        return None, "no set of GTIDs: its format tells none"
    sets = {where: _set(config, source, told, where, end) for where, end in ends.items()}
    lacking = [f"{topic}/{partition}" for (topic, partition), found in sets.items() if found is None]
    if not sets:
        return None, "no set of GTIDs: nothing has come yet"
    if lacking:
        return None, f"no set of GTIDs: {', '.join(sorted(lacking)[:_SHOWN])} tells none"
    found = gtids.common([text for text in sets.values() if text is not None])
    if not found:
        why = "have none in common" if found == "" else "can't be compared"
        return None, f"no set of GTIDs: those of its partitions {why}"
    return found, None


def _set(config: Config, source: Source, told: GtidSets, where: Where, end: int) -> str | None:
    """The newest set of GTIDs of which a partition has sent all before an offset."""
    name = "gtid" if told.name == "gtid" else f"info['{told.name}']"
    columns = ("kind", f"{name} AS gtids")
    rows = _newest(config, source, CONTROL_EVENTS, where, end, columns, f"{name} <> ''", _SETS)
    if not rows or rows[0]["kind"] not in told.with_next:
        return rows[0]["gtids"] if rows else None
    return next((r["gtids"] for r in rows if r["gtids"] != rows[0]["gtids"]), None)


def _newest(
    config: Config,
    source: Source,
    table: Table,
    where: Where,
    end: int,
    columns: tuple[str, ...],
    of: str,
    most: int = 1,
) -> list[dict[str, Any]]:
    """Of a partition the newest rows before an offset that meet a condition, the newest first."""
    topic, partition = where
    found = queries.query(
        f'SELECT {", ".join(columns)}, "offset", entry_index FROM t WHERE source = {queries.text(source.name)} '
        f"AND topic = '{delta_table.topic(topic)}' AND \"partition\" = {int(partition)} "
        f'AND "offset" >= {int(end) - _NEAR} AND "offset" < {int(end)} AND {of} '
        f'ORDER BY "offset" DESC, entry_index DESC LIMIT {most}',
        t=table.at(stores.lake(config)),
    )
    return found or []
