"""Delta tables that aren't there yet, made by one commit, put if absent. No Spark here."""

import json
import time
import uuid
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from cdc_platform.lake import commits, delta_table, lease, log_files, log_state, looks
from cdc_platform.lake.log_files import Action
from cdc_platform.lake.looks import Look
from cdc_platform.lake.store import Store
from cdc_platform.tables import Table

FIRST = f"_delta_log/{0:020d}.json"
_ensured: set[Store] = set()
"""Tables on object stores that this process has seen as they should be."""


def create(path: Store, table: Table) -> None:
    """Make a table, if it isn't there."""
    if not delta_table.exists(path):
        path.put_new(FIRST, first_commit(table))  # delta-rs would make a table that came in between once more


def ensure(table: Table, path: Store) -> Store:
    """Make the table at `path` if it isn't there, and add the columns that an earlier version's table lacks. Returns
    the path."""
    if path in _ensured and log_state.is_kept(path):  # it takes a request to see whether it is still there
        return path
    if not delta_table.exists(path):
        create(path, table)
    if table.added:
        there = {f["name"] for f in json.loads(delta_table.schema_json(path))["fields"]}
        if missing := [n for n in table.added if n not in there]:
            delta_table.add_columns(path, table.arrow(*missing, comments=True))
    if path.remote:
        _ensured.add(path)
    return path


def first_commit(table: Table) -> bytes:
    """The commit that makes a table without rows."""
    now, actions = int(time.time() * 1000), []
    for line in _made(
        table.arrow(comments=True).serialize().to_pybytes(), table.partition_by, tuple(table.properties.items())
    ):
        [(kind, action)] = json.loads(line).items()
        if kind == "metaData":
            action = {**action, "id": str(uuid.uuid4()), "description": table.comment, "createdTime": now}
        if kind == "commitInfo":
            action = {"timestamp": now, "operation": "CREATE TABLE", "engineInfo": "cdc-platform"}
        actions.append(json.dumps({kind: action}, ensure_ascii=False))
    return "\n".join(actions).encode()


@lru_cache(maxsize=256)
def _made(columns: bytes, partition_by: tuple[str, ...], properties: tuple[tuple[str, str], ...]) -> list[str]:
    """What delta-rs makes of a table with these columns (an Arrow schema): lines of its first commit."""
    import pyarrow as pa
    from deltalake import DeltaTable

    with TemporaryDirectory() as folder:
        schema = pa.ipc.read_schema(pa.py_buffer(columns))
        told = dict(properties)  # some are our own
        DeltaTable.create(
            folder, schema, partition_by=list(partition_by), configuration=told, raise_if_key_not_exists=False
        )
        return Path(folder, FIRST).read_text("utf-8").rstrip("\n").split("\n")  # names may hold other line ends


def fields(table: Table) -> list[Action]:
    """A table's columns as its first commit has them."""
    lines = map(json.loads, first_commit(table).splitlines())
    [text] = [line["metaData"]["schemaString"] for line in lines if "metaData" in line]
    return json.loads(text)["fields"]


def made(path: Store, lines: list[Action]) -> bool:
    """A table that isn't there, made by these actions. False: another has made it meanwhile."""
    lease.check()
    if not path.put_new(FIRST, log_files.encoded(lines)):
        return False
    log_state.made(path, lines)
    return True


def created(path: Store, table: Table) -> Look | None:
    """A table that isn't there, made; None: another has made it meanwhile."""
    lines = first_commit(table)
    actions = {kind: action for line in lines.splitlines() for kind, action in json.loads(line).items()}
    if not made(path, [json.loads(line) for line in lines.splitlines()]):
        return None
    metadata = actions["metaData"]
    return looks.of(path, 0, actions["protocol"], metadata, commits.empty(metadata["configuration"]))
