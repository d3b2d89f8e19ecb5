"""Delta tables of others: what the platform takes for their live files is right, or it declines. The Delta project made
them to try readers with: names of all kinds, logs with parts missing, checkpoints of all sorts, features, vectors."""

import json
import tarfile
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import QueryBuilder
from deltalake.exceptions import DeltaError

from cdc_platform.lake import commits, copies, deletion_vectors, delta_table
from cdc_platform.lake.commits import Live
from cdc_platform.lake.data_files import Unit, footer, read
from cdc_platform.lake.store import File, Store
from tests.lakes import store_at
from tests.reading import kernel_java

FIXTURES = Path(__file__).parents[1] / "fixtures" / "delta"
LIVE = FIXTURES / "golden.json"
Files = list[tuple[str, str | None, int]]
"""Of live files: path, the vector's id (None: it has none), rows marked."""


def unpacked(name: str, into: Path) -> Path:
    with tarfile.open(FIXTURES / name) as archive:
        archive.extractall(into, filter="data")
    return into


@pytest.fixture(scope="module")
def golden(tmp_path_factory: Any) -> Path:
    return unpacked("golden.tar.gz", tmp_path_factory.mktemp("golden")) / "golden"


@pytest.fixture(scope="module")
def dat(tmp_path_factory: Any) -> Path:
    return unpacked("dat-v0.0.3.tar.gz", tmp_path_factory.mktemp("dat")) / "out" / "reader_tests" / "generated"


def tables(golden: Path) -> dict[str, Path]:
    return {str(log.parent.relative_to(golden)): log.parent for log in sorted(golden.rglob("_delta_log"))}


def live(path: Path) -> Live | None:
    """As the platform sees it; None: it declines."""
    try:
        return commits.live(store_at(path))
    except DeltaError:
        return None


def told(found: Live) -> Files:
    return sorted(map(_told, found.adds), key=str)


def _told(add: dict[str, Any]) -> tuple[str, str | None, int]:
    path, vector = unquote(add["path"]), add.get("deletionVector")
    if vector is None:
        return path, None, 0
    at = "" if vector.get("offset") is None else f"@{vector['offset']}"
    return path, f"{vector['storageType']}{vector['pathOrInlineDv']}{at}", vector["cardinality"]


def test_live_files_of_golden_tables_are_right_or_not_told(golden: Path) -> None:
    expected = {name: files and [tuple(f) for f in files] for name, files in json.loads(LIVE.read_text()).items()}
    found = {name: live(path) for name, path in tables(golden).items()}
    assert found.keys() == expected.keys()
    right = {name: told(is_) for name, is_ in found.items() if is_ is not None}
    assert right == {name: expected[name] for name in right}
    # Not by declining everything: what a table of the platform may have is read.
    assert {"log-replay-dv-key-cases", "only-checkpoint-files", "corrupted-last-checkpoint-kernel"} < right.keys()
    assert {"multi-part-checkpoint", "basic-with-inserts-overwrite-restore", "snapshot-data0"} - right.keys() == {
        "snapshot-data0"  # without statistics
    }
    assert len(right) >= 17


def test_rows_of_dat_are_right_or_not_told(dat: Path) -> None:
    declined = set()
    for case in sorted(p for p in dat.iterdir() if p.is_dir()):
        [newest] = case.glob("expected/latest/table_content")
        now = live(case / "delta")
        if now is None:
            declined.add(case.name)
        else:
            assert by_vectors(store_at(case / "delta"), now) == expected_rows(newest), case.name
    partitioned = {"basic_partitioned", "multi_partitioned", "multi_partitioned_2", "partitioned_with_null"}
    features = {"cdf", "check_constraints", "column_mapping", "generated_columns", "iceberg_compat_v1"}
    assert declined == partitioned | features


def test_copies_of_dat_hold_the_same_rows(dat: Path) -> None:
    copied = set()
    for case in sorted(p for p in dat.iterdir() if p.is_dir()):
        copy = copies.of(store_at(case / "delta"))
        if copy is not None:
            copied.add(case.name)
            found = QueryBuilder().register("t", copy.table).execute("SELECT * FROM t").read_all()
            [newest] = case.glob("expected/latest/table_content")
            assert canonical(pa.table(found)) == expected_rows(newest), case.name
    assert {"basic_partitioned", "multi_partitioned", "partitioned_with_null", "nested_types"} <= copied
    assert not {"deletion_vectors", "column_mapping"} & copied


def by_vectors(table: Store, now: Live) -> list[str]:
    """Rows as the platform reads files of which some rows don't count."""
    schema = pa.schema(list(delta_table.file_fields(table).values())).remove_metadata()
    found = [pa.table({f.name: pa.array([], f.type) for f in schema})]
    for add in now.adds:
        file, gone = File(table, unquote(add["path"])), deletion_vectors.read(table, add.get("deletionVector"))
        rows = pa.Table.from_batches(read(Unit(file, 0, footer(file).num_row_groups, 0), schema), schema)
        found.append(rows.take([i for i in range(rows.num_rows) if i not in gone]))
    return canonical(pa.concat_tables(found))


def expected_rows(folder: Path) -> list[str]:
    return canonical(pa.concat_tables(pq.read_table(f) for f in sorted(folder.glob("*.parquet"))))


def canonical(table: pa.Table) -> list[str]:
    """Rows in an order of their own; times as UTC, as some files hold them without a zone."""
    names = sorted(table.column_names)
    return sorted(repr([_plain(row[n]) for n in names]) for row in table.to_pylist())


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return value.replace(tzinfo=None) if hasattr(value, "utcoffset") else value


@pytest.mark.thorough
def test_what_is_expected_of_golden_tables_is_what_delta_kernel_reads(
    golden: Path, tmp_path: Path, request: Any
) -> None:
    paths = tables(golden)
    read_ = kernel_java.read([(str(p), None) for p in paths.values()], tmp_path, rows=False)
    found: dict[str, Any] = {}
    for (name, path), of in zip(paths.items(), read_, strict=True):
        files = None if isinstance(of, str) else [[_inside(path, f[0]), *f[1:]] for f in of.files]
        found[name] = files and sorted(files, key=lambda f: str(tuple(f))) if files else files
    if request.config.option.update_snapshots:
        lines = (f"{json.dumps(n)}: {json.dumps(f)}" for n, f in found.items())
        LIVE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    assert json.loads(LIVE.read_text()) == found


def _inside(table: Path, uri: str) -> str:
    return unquote(uri).removeprefix("file:").removeprefix("//").removeprefix(f"{table}/")
