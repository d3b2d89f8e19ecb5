"""Which data files of a Delta table may hold a row, by the lowest and highest values that its log has of each file."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

from cdc_platform.lake import delta_table
from cdc_platform.lake.store import File, Store


class Above(NamedTuple):
    """All values above one."""

    than: Any


def files_that_may_hold(path: Store, some: Iterable[Mapping[str, Any]], **partition: str) -> list[File]:
    """Data files (of one partition) that may have a row with all values of one of `some`: column → value, or `Above`.
    Raises deltalake's TableNotFoundError."""
    some, added = list(some), delta_table.added(path).to_pylist()
    return [
        File(path, unquote(f["path"]))
        for f in added
        if all(f[f"partition.{n}"] == v for n, v in partition.items()) and any(_may_hold(f, row) for row in some)
    ]


def _may_hold(file: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    """Whether no column's lowest and highest value excludes it. Those of long texts are cut so that nothing is missed
    (data_files.py, `statistics`)."""
    ends = ((file.get(f"min.{column}"), value, file.get(f"max.{column}")) for column, value in row.items())
    return all(
        low is None or high is None or (value.than < high if isinstance(value, Above) else low <= value <= high)
        for low, value, high in ends
    )
