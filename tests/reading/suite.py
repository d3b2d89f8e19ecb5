"""The snapshots of written.py in the layout of Delta's acceptance tests (DAT): each a folder with the table (`delta`),
what it is about (`test_case_info.json`), and the rows of each version, and of the newest, as Parquet (`expected/…`)."""

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from shutil import copytree
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from tests.changelog.feed import Feed
from tests.reading.source_tables import DB, Table, differs
from tests.reading.written import CASES

BOOKKEEPING = ("_cdc_order", "_cdc_source_time", "_cdc_address")


class Version(NamedTuple):
    """A table at its newest version. told: what DAT tells of it besides."""

    rows: pa.Table
    told: dict[str, Any]

    @staticmethod
    def of(path: str, rows: pa.Table) -> "Version":
        table = DeltaTable(path)
        of = table.protocol()
        least = {"min_reader_version": of.min_reader_version, "min_writer_version": of.min_writer_version}
        return Version(rows, {"properties": table.metadata().configuration, **least})


def make(feed: Feed, folder: Path) -> None:
    """All cases, side by side: the rows that Spark reads are those of the source, after each round."""
    said: list[dict[str, Any]] = []
    at = count(10)
    tables = {name: Table(feed, name, said, at) for name in CASES}
    running: dict[str, Iterator[None]] = {name: CASES[name].told(t) for name, t in tables.items()}
    versions: dict[str, dict[int, Version]] = {name: {} for name in CASES}
    while running:
        running = {name: told for name, told in running.items() if next(told, "done") is None}
        feed.say(*said)
        said.clear()
        feed.catch_up()
        wrongs = []
        for name, table in tables.items():
            if feed.state(DB, name)[0] != "live":
                wrongs.append(f"{name}: {feed.state(DB, name)}")
            version = max(table.snapshot.commits(0))
            if version not in versions[name]:
                rows = feed.spark.read.format("delta").load(table.snapshot.uri()).toArrow()
                own = rows.drop_columns([n for n in BOOKKEEPING if n in rows.column_names])
                if wrong := differs(table.rows, own):
                    wrongs.append(f"{name}: {wrong}")
                versions[name][version] = Version.of(table.snapshot.uri(), rows)
        assert not wrongs, "\n".join(wrongs)
    for name, found in versions.items():
        there = tables[name].snapshot.commits(0)
        kept = {number: version for number, version in found.items() if number in there}
        _laid_out(folder / name, tables[name].snapshot.uri(), CASES[name].what, kept)


def add(folder: Path, name: str, what: str, path: str, rows: pa.Table) -> None:
    """One more, of a table that is as it is."""
    _laid_out(folder / name, path, what, {DeltaTable(path).version(): Version.of(path, rows)})


def _laid_out(case: Path, path: str, what: str, versions: dict[int, Version]) -> None:
    copytree(path, case / "delta")
    (case / "test_case_info.json").write_text(json.dumps({"name": case.name, "description": what}))
    for name, number in {**{f"v{n}": n for n in versions}, "latest": max(versions)}.items():
        content = case / "expected" / name / "table_content"
        content.mkdir(parents=True)
        pq.write_table(versions[number].rows, content / "part-00000.parquet")
        told = {"version": number, **versions[number].told}
        (content.parent / "table_version_metadata.json").write_text(json.dumps(told))
