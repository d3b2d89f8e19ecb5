"""A Delta table's columns, as its next version is to have them: metadata alone, no file is rewritten.

Delta's protocol, "Schema Serialization Format", "Column Mapping", "Table Features".
"""

import json
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cdc_platform.lake.log_files import Action
from cdc_platform.tables import KEY, STATS

MAPPING, _BY_NAME, _NONE = "delta.columnMapping.mode", "name", "none"
COLUMN_MAPPING, NTZ = "columnMapping", "timestampNtz"
"""Features of a protocol."""
_ID, _PHYSICAL, _LAST = "delta.columnMapping.id", "delta.columnMapping.physicalName", "delta.columnMapping.maxColumnId"
_READS, _WRITES = 3, 7
"""Versions from which on a protocol tells its features one by one."""
_OF_VERSIONS = {1: [], 2: ["appendOnly", "invariants"]}
"""What a writer's version before meant."""


_RESERVED = frozenset(" ,;{}()\n\t=")
"""Characters that Delta takes in column names only with column mapping (DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES)."""


def needs_mapping(names: Iterable[str]) -> bool:
    """Whether Delta accepts these column names only with column mapping."""
    return any(_RESERVED & set(name) for name in names)


class Columns:
    """Columns and what is asked of readers and writers for them. fields: as JSON has them. Raises ValueError for a
    version of the protocol between those with features of their own."""

    def __init__(self, protocol: Action, metadata: Action):
        self.protocol = {**protocol}
        self.fields: list[Action] = json.loads(metadata["schemaString"])["fields"]
        self.configuration: dict[str, str] = {**metadata["configuration"]}
        self._before = protocol, metadata

    @property
    def names(self) -> list[str]:
        """In order."""
        return [f["name"] for f in self.fields]

    @property
    def mapped(self) -> bool:
        """Whether columns have other names in files."""
        return self.configuration.get(MAPPING, _NONE) != _NONE

    def map(self) -> None:
        """Enables column mapping, so that readers without it refuse the table. By itself it has reader version 2, for
        which deltalake's PyArrow reader (1.6) doesn't look whether columns are mapped: it gives NULLs. Every reader
        that supports it supports timestampNtz, which raises the version to 3. Files that are there keep their columns'
        names."""
        if self.mapped:
            return
        self._ask(COLUMN_MAPPING)
        self._ask(NTZ)
        self.configuration[MAPPING] = _BY_NAME
        self.fields = [self._numbered(f, str) for f in self.fields]

    def add(self, field: Action, place: int) -> None:
        """A column more, at a place. Its name may need column mapping."""
        if needs_mapping([field["name"]]):
            self.map()
        if NTZ in _asked(field):
            self._ask(NTZ)
        self.fields.insert(place, self._numbered(field, _new_name) if self.mapped else field)

    def rename(self, old: str, new: str) -> None:
        """A column, of a table that is mapped."""
        at = self.names.index(old)
        self.fields[at] = {**self.fields[at], "name": new}
        self._with_statistics(lambda n: new if n == old else n)
        if key := self.configuration.get(KEY):
            self.configuration[KEY] = json.dumps([new if n == old else n for n in json.loads(key)])

    def drop(self, name: str) -> None:
        """A column, of a table that is mapped."""
        del self.fields[self.names.index(name)]
        self._with_statistics(lambda n: None if n == name else n)

    def move(self, name: str, place: int) -> None:
        """A column to a place among the others."""
        self.fields.insert(place, self.fields.pop(self.names.index(name)))

    def replace(self, fields: list[Action], key: str | None) -> None:
        """These columns in place of others, of a table that has no files any more. key: what it says of its key."""
        self.configuration.pop(KEY, None)
        self.configuration |= {} if key is None else {KEY: key}
        if [_unmapped(f) for f in self.fields] == fields:
            return
        self.fields = []
        for place, field in enumerate(fields):
            self.add(field, place)

    def actions(self) -> list[Action]:
        """What a commit says of it; none, where it is as it was."""
        protocol, metadata = self._before
        now = self.now()[1]
        lines: list[Action] = [] if self.protocol == protocol else [{"protocol": self.protocol}]
        return lines if now == metadata else [*lines, {"metaData": now}]

    def now(self) -> tuple[Action, Action]:
        """Protocol and metadata as they are to be."""
        metadata = self._before[1]
        schema = {"type": "struct", "fields": self.fields}
        same = json.loads(metadata["schemaString"]) == schema
        text = metadata["schemaString"] if same else json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
        return self.protocol, {**metadata, "schemaString": text, "configuration": self.configuration}

    def _ask(self, feature: str) -> None:
        """Lists a feature of readers and writers in the protocol."""
        of = self.protocol
        if of["minWriterVersion"] < _WRITES:
            if of["minWriterVersion"] not in _OF_VERSIONS:
                raise ValueError(f"writer version {of['minWriterVersion']}")
            of["writerFeatures"] = _OF_VERSIONS[of["minWriterVersion"]]
        if of["minReaderVersion"] < _READS:
            of["readerFeatures"] = [COLUMN_MAPPING] if of["minReaderVersion"] > 1 else []
        of |= {"minReaderVersion": _READS, "minWriterVersion": _WRITES}
        for kind in ("readerFeatures", "writerFeatures"):
            of[kind] = list(dict.fromkeys([*(of.get(kind) or ()), feature]))

    def _with_statistics(self, named: Callable[[str], str | None]) -> None:
        if told := self.configuration.get(STATS):
            kept = [n for old in told.split(",") if (n := named(old)) is not None]
            self.configuration[STATS] = ",".join(kept)

    def _numbered(self, field: Action, name: Callable[[str], str]) -> Action:
        """A field with a number of its own and a name in files; those within it, too."""
        number = self.configuration[_LAST] = str(int(self.configuration.get(_LAST, "0")) + 1)
        own = {**field["metadata"], _ID: int(number), _PHYSICAL: name(field["name"])}
        return {**field, "type": self._within(field["type"], name), "metadata": own}

    def _within(self, type_: Any, name: Callable[[str], str]) -> Any:
        if not isinstance(type_, dict):
            return type_
        if type_["type"] == "struct":
            return {**type_, "fields": [self._numbered(f, name) for f in type_["fields"]]}
        return {k: self._within(v, name) for k, v in type_.items()}


def _new_name(_: str) -> str:
    return f"col-{uuid.uuid4()}"


def _unmapped(of: Any) -> Any:
    """A field without its number and its name in files; those within it, too."""
    if isinstance(of, dict):
        return {k: _unmapped(v) for k, v in of.items() if k not in (_ID, _PHYSICAL)}
    return [_unmapped(v) for v in of] if isinstance(of, list) else of


def _asked(field: Mapping[str, Any]) -> set[str]:
    """Features that a field's type needs."""
    return {NTZ} if "timestamp_ntz" in json.dumps(field["type"]) else set()
