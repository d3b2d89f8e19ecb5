"""Types that canal's messages leave open (labels, lengths, digits; or all, without `mysqlType`), as the source's schema
history has them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from cdc_platform.formats.canal.cells import Cells
from cdc_platform.formats.canal.entries import Entries
from cdc_platform.formats.events import file_number
from cdc_platform.formats.table_schemas.lookup import TableSchemas
from cdc_platform.formats.table_schemas.places import Place


@dataclass(frozen=True, slots=True)
class Known:
    """For one batch of messages."""

    schemas: TableSchemas
    messages: pa.RecordBatch

    def complete(
        self, cells: Cells, entries: Entries, entry: np.ndarray, number: np.ndarray, names: list[tuple[str, str]]
    ) -> None:
        """Gives cells of open types those that are known. `entry`: of each row; `number`: of its table, in `names`."""
        if self.schemas.empty or not len(where := cells.open()):
            return
        row = cells.image[where] % max(len(entry), 1)
        for of in np.unique(number[row]).tolist():
            db, table = names[of]
            if self.schemas.knows(db, table):
                mine = number[row] == of
                self._complete(cells, db, table, where[mine], entries, entry[row[mine]])

    def _complete(
        self, cells: Cells, db: str, table: str, where: np.ndarray, entries: Entries, entry: np.ndarray
    ) -> None:
        columns = np.unique(cells.name[where]).tolist()
        always = {i: self.schemas.always(db, table, cells.names[i]) for i in columns}
        same = np.isin(cells.name[where], [i for i, found in always.items() if found is not None])
        of_name = {cells.names[i]: found[0] for i, found in always.items() if found is not None}
        if same.any():
            cells.complete(where[same], of_name.get)
        others, entry = where[~same], entry[~same]
        if not len(others):
            return
        wanted = tuple(cells.names[i] for i in columns)
        place = _Places(self.messages, entries)
        for at in np.unique(entry).tolist():
            known = self.schemas.of_row(db, table, place(at), wanted)
            if known is not None:
                cells.complete(others[entry == at], known.type_of)


class _Places:
    """Where entries stand."""

    def __init__(self, messages: pa.RecordBatch, entries: Entries):
        self._address = [messages.column(n) for n in ("topic", "partition", "offset")]
        self._entries = entries

    def __call__(self, entry: int) -> Place:
        message = int(self._entries.message[entry])
        topic, partition, offset = (column[message].as_py() for column in self._address)
        file, pos, server, ms = (
            self._header(n, entry) for n in ("logfileName", "logfileOffset", "serverId", "executeTime")
        )
        number = file_number(file) if file else None
        at = None if number is None or pos is None else (number, int(pos))
        lineage = None if not server else str(server)
        time = None if not ms else int(ms) * 1000
        return Place(topic, partition, offset, int(self._entries.place[entry]), lineage, at, time)

    def _header(self, name: str, entry: int) -> Any:
        return self._entries.header.field(name)[entry].as_py()
