"""Looks for bytes in every file below a folder: not by the code under test."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def holding(folder: Path, *wanted: str) -> list[str]:
    """Files, and columns of Parquet files, that hold one of some texts: in values, texts of logs, footers, names."""
    forms = [f for text in wanted for f in {text.encode(), json.dumps(text)[1:-1].encode()}]
    found = []
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        where = str(path.relative_to(folder))
        told = [where.encode(), path.read_bytes()]
        if path.suffix == ".parquet":
            with pq.ParquetFile(path) as file:
                told += list((file.metadata.metadata or {}).values())
                told += [v for batch in file.iter_batches() for column in batch.columns for v in _values(column)]
        if any(form in data for form in forms for data in told):
            found.append(where)
    return found


def _values(column: pa.Array) -> Iterator[bytes]:
    yield from (_bytes(v) for v in column.to_pylist())


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict):
        return b"\n".join(map(_bytes, value.values()))
    if isinstance(value, (list, tuple)):
        return b"\n".join(map(_bytes, value))
    return b"" if value is None else str(value).encode()
