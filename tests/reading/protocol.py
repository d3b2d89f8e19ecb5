"""What Delta's protocol asks of each commit, held against a table's log and files: what readers rely on, and what some
have stumbled over. Versions before the log's beginning aren't looked at."""

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cdc_platform.lake import deletion_vectors
from tests.lakes import store_at

Action = dict[str, Any]
_VECTORS = "deletionVectors"


def problems(path: str) -> list[str]:
    """One line for each thing that isn't as it has to be."""
    log = _Log(Path(path))
    for number, actions in _commits(path):
        log.take(actions)
        log.found += [f"commit {number}: {text}" for text in log.now]
        log.now = []
    return log.found


def vectors(path: str) -> tuple[list[str], bool]:
    """Files that have a vector now, and whether the platform has ever made one."""
    marked, own = {}, False
    for _, actions in _commits(path):
        adds = [a["add"] for a in actions if "add" in a]
        marked |= {a["path"]: False for a in (a["remove"] for a in actions if "remove" in a)}
        marked |= {a["path"]: "deletionVector" in a for a in adds}
        engines = [a["commitInfo"].get("engineInfo") for a in actions if "commitInfo" in a]
        own |= engines == ["cdc-platform"] and any("deletionVector" in a for a in adds)
    return [path for path, has in marked.items() if has], own


def _commits(path: str) -> Iterator[tuple[int, list[Action]]]:
    for file in sorted(p for p in (Path(path) / "_delta_log").glob("*.json") if p.stem.isdigit()):
        lines = file.read_text("utf-8").split("\n")
        yield int(file.stem), [json.loads(line) for line in lines if line.strip()]


class _Log:
    """A table, commit by commit. live: path → the `add` that is the newest; whole: whether all of the log was seen."""

    def __init__(self, path: Path):
        self.path, self.found, self.now = path, [], []
        self.live: dict[str, Action] = {}
        self.protocol: Action = {}
        self.metadata: Action = {}
        self.whole = (path / "_delta_log" / f"{0:020d}.json").exists()

    def take(self, actions: list[Action]) -> None:
        by = {kind: [a[kind] for a in actions if kind in a] for kind in ("protocol", "metaData", "add", "remove")}
        self.protocol = (by["protocol"] or [self.protocol])[-1]
        self.metadata = (by["metaData"] or [self.metadata])[-1]
        for kind in ("add", "remove"):
            self._say(len({_key(a) for a in by[kind]}) == len(by[kind]), f"{kind}: a file is told twice")
        for gone in (r for r in by["remove"] if not r["path"].endswith(".bin")):  # vectors, as DROP FEATURE tells them
            there = self.live.pop(gone["path"], None)
            if self.whole:
                self._say(there is not None, f"{gone['path']} is removed and wasn't there")
                self._say(there is None or _key(there) == _key(gone), f"{gone['path']} is removed with another vector")
        for came in by["add"]:
            self._say(came["path"] not in self.live, f"{came['path']} is there twice")
            self.live[came["path"]] = came
        if not self.metadata:
            return
        for came in by["add"]:
            self._file(came)
        if marked := [a for a in self.live.values() if a.get("deletionVector")]:
            self._say(self._enabled, f"{len(marked)} files have vectors and {_VECTORS} aren't enabled")

    @property
    def _enabled(self) -> bool:
        named = {*self.protocol.get("readerFeatures", ())} & {*self.protocol.get("writerFeatures", ())}
        told = self.metadata["configuration"].get("delta.enableDeletionVectors")
        return _VECTORS in named and told == "true"

    def _say(self, fine: bool, problem: str) -> None:
        if not fine:
            self.now.append(problem)

    def _file(self, add: Action) -> None:
        place = self.path / unquote(add["path"])
        if not place.exists():  # VACUUM was there
            return
        file = pq.ParquetFile(place)
        self._say(place.stat().st_size == add["size"], f"{place.name}: another size")
        partitioned = set(self.metadata["partitionColumns"])
        self._say(add["partitionValues"].keys() == partitioned, f"{place.name}: other partitions")
        stats = json.loads(add.get("stats") or "{}", parse_float=Decimal)
        self._say(
            stats.get("numRecords", file.metadata.num_rows) == file.metadata.num_rows, f"{place.name}: other rows"
        )
        vector = add.get("deletionVector")
        if vector:
            gone = deletion_vectors.read(store_at(self.path), vector)
            self._say(max(gone) < file.metadata.num_rows, f"{place.name}: a row is marked that isn't there")
            self._say(len(gone) < file.metadata.num_rows, f"{place.name}: nothing is left and it is still there")
            self._say("numRecords" in stats, f"{place.name}: has a vector and doesn't tell its rows")
            self._say(stats.get("tightBounds") is False, f"{place.name}: has a vector and tight bounds")
        self._columns(place.name, file)
        self._statistics(place.name, file.read(), stats)

    def _columns(self, name: str, file: pq.ParquetFile) -> None:
        """Columns of files have the names, and the numbers, that the table maps its own to."""
        mode = self.metadata["configuration"].get("delta.columnMapping.mode", "none")
        if mode == "none":
            return
        numbers = {f.name: (f.metadata or {}).get(b"PARQUET:field_id") for f in file.schema_arrow}
        for field in json.loads(self.metadata["schemaString"])["fields"]:
            told = field["metadata"]
            number = numbers.get(told["delta.columnMapping.physicalName"])
            if number is not None:
                self._say(int(number) == told["delta.columnMapping.id"], f"{name}: another number of {field['name']}")

    def _statistics(self, name: str, rows: pa.Table, stats: Action) -> None:
        """No value is below the lowest or above the highest one, and NULLs are counted."""
        for path, told in _leaves(stats.get("minValues", {})):
            self._say(
                all(v >= _bound(told, v, below=True) for v in _values(rows, path)), f"{name}: {path} is below {told}"
            )
        for path, told in _leaves(stats.get("maxValues", {})):
            self._say(
                all(v <= _bound(told, v, below=False) for v in _values(rows, path)), f"{name}: {path} is above {told}"
            )
        for path, told in _leaves(stats.get("nullCount", {})):
            nulls = rows.num_rows - len(_values(rows, path))
            self._say(told == nulls, f"{name}: {path} has {nulls} NULLs and not {told}")


def _key(action: Action) -> tuple[str, Any]:
    vector = action.get("deletionVector")
    return action["path"], vector and (vector["storageType"], vector["pathOrInlineDv"], vector.get("offset"))


def _leaves(tree: Action, *outer: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, told in tree.items():
        if isinstance(told, dict):
            yield from _leaves(told, *outer, name)
        elif told is not None:
            yield (*outer, name), told


def _values(rows: pa.Table, path: tuple[str, ...]) -> list[Any]:
    column = rows.column(path[0]) if path[0] in rows.column_names else pa.nulls(rows.num_rows)
    for name in path[1:]:
        column = pc.struct_field(column, name)  # pyright: ignore[reportAttributeAccessIssue]
    return [v for v in column.to_pylist() if v is not None]


def _bound(told: Any, like: Any, *, below: bool) -> Any:
    """What statistics say, as a value of the column. Spark cuts the highest time to the millisecond, which readers
    know."""
    if isinstance(like, datetime):
        at = datetime.fromisoformat(told)
        wide = timedelta(0) if below or len(told.partition(".")[2].rstrip("Z")) > 3 else timedelta(milliseconds=1)
        at = at.replace(tzinfo=at.tzinfo or UTC if like.tzinfo else None)
        return at + wide if at < datetime.max.replace(tzinfo=at.tzinfo) - wide else at.replace(microsecond=999999)
    return _BOUNDS.get(type(like), lambda told: told)(told)


_BOUNDS: dict[type, Callable[[Any], Any]] = {date: date.fromisoformat, float: float, Decimal: Decimal}


def of_lake(lake: Path, but: Iterable[str] = ()) -> dict[str, list[str]]:
    """The same of all tables below a folder, by their paths in it; those with problems."""
    tables = sorted(log.parent for log in lake.rglob("_delta_log"))
    found = {str(table.relative_to(lake)): problems(str(table)) for table in tables}
    return {name: told for name, told in found.items() if told and name not in but}
