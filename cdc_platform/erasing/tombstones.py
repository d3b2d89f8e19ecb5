"""Kafka tombstones behind a subject's messages: records without a value, which tell its key alone. Compacted topics of
Debezium have one behind each delete."""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from cdc_platform.erasing.subject import rows_at
from cdc_platform.explain.records import Address
from cdc_platform.lake import delta_table
from cdc_platform.lake.data_files import Unit, footer, read
from cdc_platform.lake.store import File, Store
from cdc_platform.tables import LANDING

_KEYED = LANDING.arrow(*Address._fields, "key")
_RECORD = LANDING.arrow(*Address._fields, "key", "value")


def of(landing: Store, records: Iterable[Address]) -> list[Address]:
    """Those of the partitions of some records, under the key of one of them, in order."""
    keys: dict[tuple[str, int], set[bytes]] = {}
    for _, address, rows in rows_at(landing, records, _KEYED):
        keys.setdefault(address[:2], set()).update(rows.column("key").drop_null().to_pylist())
    every = pa.array(sorted({key for some in keys.values() for key in some}), pa.binary())
    found = set[Address]()
    for batch in _may_have_any(landing) if len(every) else ():
        told = pc.and_(pc.is_null(batch.column("value")), pc.is_in(batch.column("key"), every))
        for row in batch.filter(told).drop_columns(["value"]).to_pylist():
            if row.pop("key") in keys.get((row["topic"], row["partition"]), ()):
                found.add(Address(**row))
    return sorted(found)


def _may_have_any(landing: Store) -> Iterator[pa.RecordBatch]:
    """Records of the row groups in which some may have no value."""
    for name in delta_table.files(landing):
        file = File(landing, name)
        told = footer(file)
        names = [told.schema.column(i).path for i in range(told.num_columns)]
        for group in range(told.num_row_groups):
            stats = told.row_group(group).column(names.index("value")).statistics
            if stats is None or not stats.has_null_count or stats.null_count:
                yield from read(Unit(file, group, group + 1, 0), _RECORD)
