"""Figures of a batch: what its events are, and where their row changes stand in the source's log."""

from decimal import Decimal
from itertools import pairwise
from typing import Any

from cdc_platform.changes.file_stats import KINDS
from cdc_platform.tables import ROW_ADDRESS

ADDRESS = ROW_ADDRESS.names


def merged_statistics(notes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Statistics of one batch per lineage (one dict per server seen) from those of its files (changes/file_stats.py):
    counts per kind and of events decoded again, lowest and highest binlog position of row changes, offset range, schema
    versions stated."""
    groups = [g for note in notes for g in note["groups"]]
    return [
        _lineage_statistics(lineage, [g for g in groups if g["lineage"] == lineage])
        for lineage in _each(groups, "lineage")
    ]


def _each(groups: list[dict[str, Any]], *names: str) -> list[Any]:
    found = dict.fromkeys(tuple(g[n] for n in names) for g in groups)
    return [f[0] for f in found] if len(names) == 1 else list(found)


def _lineage_statistics(lineage: str | None, groups: list[dict[str, Any]]) -> dict[str, Any]:
    placed = [g for g in groups if g["file"] is not None]
    least, most = (
        [(g["file"], Decimal(g[pos])) for g in placed if g[pos] is not None] for pos in ("low_pos", "high_pos")
    )
    return {
        "lineage": lineage,
        **{k: sum(g["count"] for g in groups if g["kind"] in kinds) for k, kinds in KINDS.items()},
        "retold": sum(g.get("retold", 0) for g in groups),
        "events": sum(g["count"] for g in groups),
        "from_offset": min(g["from_offset"] for g in groups),
        "to_offset": max(g["to_offset"] for g in groups),
        "low": dict(zip(("file_no", "binlog_pos"), min(least), strict=True)) if least else None,
        "high": dict(zip(("file_no", "binlog_pos"), max(most), strict=True)) if most else None,
        "versions": [v for v in _each(groups, "version") if v is not None],
    }


def apart(notes: list[dict[str, Any]]) -> bool:
    """Whether files note that none of their row changes can be there twice: none tells its position, or all are one
    server's and ascend in each file, and no file's reach into another's."""
    told = [note["ascending"] for note in notes if note["ascending"]["count"]]
    if not all(t["fine"] for t in told) or len({t["lineage"] for t in told}) > 1:
        return False
    spans = sorted((t["first"], t["last"]) for t in told)
    return all(last < first for (_, last), (first, _) in pairwise(spans))
