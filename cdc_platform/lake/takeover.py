"""A table made anew in a folder below its own, and put in place by one commit: readers find the rows before or the rows
after, never fewer. Its data files stay in that folder. No Spark here.
"""

import time
import uuid

from cdc_platform.errors import LakeChanged
from cdc_platform.lake import commits, handles, lease, log_state, new_tables
from cdc_platform.lake.columns import MAPPING, Columns
from cdc_platform.lake.log_files import Action
from cdc_platform.lake.log_state import LogFiles
from cdc_platform.lake.store import Store
from cdc_platform.tables import KEY, Table

_FOLDER, _LOG = "rebuild-", "/_delta_log/"
"""A name that doesn't begin with `_`: upkeep looks for files there, too."""
_MAPPING = MAPPING.rpartition(".")[0]


def beside(path: Store) -> Store:
    """A new place below a table's."""
    sweep(path)
    return path.at(f"{_FOLDER}{uuid.uuid4().hex}")


def sweep(path: Store) -> None:
    """Removes what killed runs left below a table, whose source is held: places that have a log still, of which the
    table has no files (a backup may have brought a log back)."""
    there = path.below("")
    left = {folder for p in there if p.startswith(_FOLDER) and _LOG in p and (folder := p.split("/", 1)[0])}
    if not left:
        return
    try:
        told = log_state.now(path)
    except FileNotFoundError:  # it can't be told which of them are the table's
        return
    left -= {add["path"].split("/", 1)[0] for add in told.adds} if told else set()
    lease.check()
    path.remove(p for p in there if p.split("/", 1)[0] in left)


def like(path: Store, there: Store, table: Table) -> bool:
    """Makes a table without rows: as one that is there, but with these columns. False: that one has what isn't kept to
    here, or there is none."""
    try:
        told = log_state.now(there)
    except FileNotFoundError:
        return False
    if told is None or not _is_kept_to(told):
        return False
    columns = Columns(told.protocol, told.metadata)
    try:
        columns.replace(new_tables.fields(table), table.settings.get(KEY))
    except ValueError:  # a protocol of before features had names
        return False
    protocol, metadata = columns.now()
    return new_tables.made(
        path, [_created(), {"protocol": protocol}, {"metaData": {**metadata, "id": str(uuid.uuid4())}}]
    )


def take_over(path: Store, of: Store) -> bool:
    """Puts rows and columns of a table that was made below (`beside`) in place of those that are there, or makes the
    table of them. That one is no table any more then. False: nothing was done, for either has what isn't kept to here.
    Raises LakeChanged where that begins meanwhile, StorageError."""
    try:
        found, before = log_state.now(of), log_state.now(path)
    except FileNotFoundError:
        return False
    if found is None or any("deletionVector" in add for add in found.adds):
        return False
    if before is not None and not _fits(before, found):
        return False
    folder = of.root.removeprefix(f"{path.root}/")
    adds: list[Action] = [{"add": {**a, "path": f"{folder}/{a['path']}", "dataChange": True}} for a in found.adds]
    of.remove(f"_delta_log/{p}" for p in of.below("_delta_log"))  # first: what has a log is removed by the next one
    _forget(of)
    for _ in commits.tries(path):
        if (before := _still(path)) is None:
            if new_tables.made(path, [_created(), {"protocol": found.protocol}, {"metaData": found.metadata}, *adds]):
                return True
        elif not _fits(before, found):
            raise LakeChanged(path.uri(), "its protocol was changed while it was made anew")
        elif commits.add_version(before, "WRITE", [*_head(before, found), *commits.removes(before.adds), *adds]):
            return True
    raise AssertionError(path)


def discard(place: Store) -> None:
    """Removes a table that isn't taken over: it has a log."""
    there = place.below("")
    place.remove(there if any(p.startswith("_delta_log/") for p in there) else ())
    _forget(place)


def _created() -> Action:
    told = {"timestamp": int(time.time() * 1000), "operation": "CREATE TABLE", "engineInfo": "cdc-platform"}
    return {"commitInfo": told}


def _forget(place: Store) -> None:
    log_state.forget(place)
    handles.forget(place)


def _still(path: Store) -> LogFiles | None:
    """The table as it is now; None: there is none. Raises LakeChanged."""
    try:
        return log_state.now(path)
    except FileNotFoundError as error:
        raise LakeChanged(path.uri(), f"its log can't be read in full any more: {error}") from None


def _is_kept_to(told: LogFiles) -> bool:
    return not (
        commits.unknown(told.protocol)
        or told.metadata.get("partitionColumns")
        or commits.refused(told.metadata["configuration"])
    )


def _fits(before: LogFiles, found: LogFiles) -> bool:
    """Whether files of the one can be files of the other, as the protocol of that one says."""
    versions = all(before.protocol[v] <= found.protocol[v] for v in ("minReaderVersion", "minWriterVersion"))
    asked, has = (
        {f for kind in ("readerFeatures", "writerFeatures") for f in told.protocol.get(kind) or ()}
        for told in (before, found)
    )
    return _is_kept_to(before) and versions and asked <= has


def _head(before: LogFiles, found: LogFiles) -> list[Action]:
    """The protocol, if it changes, and columns of the one with the properties of the other."""
    own, told = (t.metadata["configuration"] for t in (before, found))
    kept = {k: v for k, v in own.items() if not _of_columns(k)} | {k: v for k, v in told.items() if _of_columns(k)}
    metadata = {**before.metadata, "schemaString": found.metadata["schemaString"], "configuration": kept}
    lines: list[Action] = [] if before.protocol == found.protocol else [{"protocol": found.protocol}]
    return lines if metadata == before.metadata else [*lines, {"metaData": metadata}]


def _of_columns(name: str) -> bool:
    """Whether a property says something of the columns that are there."""
    return name == KEY or name.startswith(_MAPPING)
