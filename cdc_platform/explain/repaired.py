"""What a repair changed, and why that was different: as data, and for people."""

from binascii import b2a_base64
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from cdc_platform.config import Config, Source
from cdc_platform.errors import CdcError
from cdc_platform.tables import LOADED
from cdc_platform.units import quoted_value, when

if TYPE_CHECKING:
    from cdc_platform.loading.repair import Repaired
    from cdc_platform.reconcile.result import Difference

_WHY = {
    "missing": "the row was lacking",
    "extra": "the server has no such row",
    "changed": "columns differed",
    "repeated": "the row was there more often",
}
_EXPLAINED = 20
"""Rows of a table whose last change is looked for."""


def data(config: Config, source: Source, done: "list[Repaired]") -> list[dict[str, Any]]:
    """Per table: rows (put in), gone (taken out), at (place in the server's log), left (why something stays), missing,
    extra, changed (rows that were so), differences: kind, key, why, columns (that differed: server, snapshot),
    last_change (before the repair: address, op, position; null: none is known), erased (number and time of the erasure
    that took the row out, where no change has come since; else null)."""
    out = []
    for one in done:
        was = one.before
        counts = {kind: getattr(was, kind) for kind in ("missing", "extra", "changed")}
        rows = [_row(config, source, one, d, explain=i < _EXPLAINED) for i, d in enumerate(was.differences)]
        out.append({**one.to_json(), **counts, "differences": rows})
    return out


def _row(config: Config, source: Source, done: "Repaired", one: "Difference", *, explain: bool) -> dict[str, Any]:
    cells = [c for c in one.cells if c.differs] if one.kind == "changed" else []
    columns = {c.column: {"server": c.expected, "snapshot": c.actual} for c in cells}
    known = _known(config, source, done, one) if explain else _NOTHING
    told = {"last_change": known.last_change, "erased": known.erased}
    return {"kind": one.kind, "key": one.key, "why": _WHY[one.kind], "columns": columns, **told}


class _Known(NamedTuple):
    """What the lake knew of a row before the repair, as `data` has it."""

    last_change: dict[str, Any] | None = None
    erased: dict[str, Any] | None = None


_NOTHING = _Known()


def _known(config: Config, source: Source, done: "Repaired", one: "Difference") -> _Known:
    """The change of the row that had come last, as far as the changelog tells it; where there is none, the erasure that
    took it out."""
    from cdc_platform.explain.changes import Changes
    from cdc_platform.explain.events import kafka_address
    from cdc_platform.explain.table import find
    from cdc_platform.landing.erased import erased_before

    try:
        found = find(config, source, done.table)
        types = {c.name: c.parsed for c in found.columns}
        key = {n: _text(v, types.get(n)) for n, v in one.key.items()}
        came = [c for c in Changes(config, found).of(key).came if not _own(c, done)]
    except CdcError:  # the row is told all the same
        return _NOTHING
    last = max(came, key=lambda c: c["order_key"], default=None)
    if last is None:
        gone = erased_before(config, source.name, found.names, key)
        return _Known(erased={"number": gone["number"], "at": gone["at"]} if gone else None)
    at = f"{last['binlog_file']}:{last['binlog_pos']}" if last["binlog_file"] else None
    return _Known({"address": kafka_address(last), "op": last["op"], "position": at})


def _own(change: Mapping[str, Any], done: "Repaired") -> bool:
    """Whether the repair itself told it."""
    at = (change["partition"], change["offset"])
    return done.first is not None and change["topic"] == LOADED and at >= done.first


def _text(shown: str | None, type_: Any) -> str | None:
    """A key's value as changes have it, from how it is shown to people."""
    if shown is None or type_ is None or type_.family not in ("binary", "geometry"):
        return shown
    return b2a_base64(bytes.fromhex(shown.removeprefix("0x")), newline=False).decode()


def tables(told: list[dict[str, Any]]) -> Any:
    """A line per table."""
    return [
        {"table": t["table"], "put in": t["rows"], "taken out": t["gone"], "at": t["at"], "left": "; ".join(t["left"])}
        for t in told
    ] or "nothing differed"


def rows(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A line per row, one per column of a row whose columns differed."""
    return list(_rows(told))


def _rows(told: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for table in told:
        for row in table["differences"]:
            key = ", ".join(f"{k}={quoted_value(v)}" for k, v in row["key"].items())
            by = _last_change(row)
            about = {"table": table["table"], "key": key, "why": row["why"]}
            for column, cell in row["columns"].items() or [(None, {"server": None, "snapshot": None})]:
                both = {name: None if column is None else quoted_value(value) for name, value in cell.items()}
                yield {**about, "column": column, **both, "last change": by}


def _last_change(row: dict[str, Any]) -> str:
    if last := row["last_change"]:
        return f"{last['op']} at {last['address']}"
    if gone := row["erased"]:
        return f"erasure {gone['number']} took it out ({when(gone['at'])})"
    return "none"
