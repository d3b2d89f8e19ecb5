"""Tencent TDSQL's (and TencentDB for MariaDB's) binlog as JSON, one message per row, DDL and transaction mark.

Facts: Tencent Cloud documentation 237/35420 ("Binlog Consumption Format"); messages and readers in public
repositories (sync2any). A row is two lists of literals by position; names, types and keys come from the DDL
seen in the topic and from a file of CREATE TABLE statements (`schemas`). `eventtype` is a number that differs
between server versions, so `eventtypestr` decides. `orgoffset` and `sequence_num` count messages, not bytes of
the binlog (both step by the number of messages in between, and `sequence_num` starts anew with a task), so they
order nothing across tasks: changes are ordered by the topic, or by GTID at will.
"""

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import pyarrow as pa

from cdc_platform.formats.contract import Context as ContextOf
from cdc_platform.formats.contract import Format, Limit, Liveness
from cdc_platform.formats.events import Event, collection_paused, error_event, event_batch, in_order, rare_batch
from cdc_platform.formats.exact_json import read_json
from cdc_platform.formats.limits import of
from cdc_platform.formats.tdsql.messages import Changes, Row, Rows, names_of, place, read
from cdc_platform.formats.tdsql.options import TdsqlOptions
from cdc_platform.formats.tdsql.plain import PlainReader
from cdc_platform.formats.tdsql.rows import Group, convert_rows, group_of, of_row
from cdc_platform.formats.tdsql.schemas import UNKNOWN, Schemas, States, Table, context
from cdc_platform.formats.texts import BAD

_Place = tuple[int, int]
"""Message in the batch; 0 for what comes before its events, then its events from 1."""


class _Batch:
    """Decodes one MESSAGE batch: control messages at once, rows collected by table and state of its columns."""

    def __init__(self, messages: pa.RecordBatch, options: TdsqlOptions, told: States | None):
        self.messages, self.options = messages, options
        self.schemas = Schemas(told, options.lower_case_table_names)
        self.groups: dict[Group, list[Changes]] = {}
        self.rare: list[tuple[_Place, Event]] = []

    @cached_property
    def addresses(self) -> list[tuple[str, int, int]]:
        """Topic, partition and offset of each message."""
        columns = (self.messages.column(name).to_pylist() for name in ("topic", "partition", "offset"))
        return list(zip(*columns, strict=True))

    def read(self) -> None:
        values = self.messages.column("value").to_pylist()
        plain = PlainReader(self.schemas, lambda at: self.addresses[at], self.options)(values)
        self.groups = plain.rows
        self.rare = [((at, 1 + i), event) for at, events in plain.events for i, event in enumerate(events)]
        others: dict[Group, list[Row]] = {}
        for at in plain.others:
            if values[at] is None:
                self.rare.append(((at, 1), {"kind": "skip", "reason": "no value"}))
                continue
            message = None
            try:
                message = read_json(values[at])
                found = read(at, message, self.options)
                if isinstance(found, Rows):
                    others.setdefault(self.group(found), []).append(found.row)
                else:
                    self.rare.extend(((at, 1 + i), event) for i, event in enumerate(found))
            except BAD as e:
                self.rare.append(((at, 1), {**names_of(message, self.options), **error_event(e)}))
        for group, rows in others.items():
            self.groups.setdefault(group, []).append(Changes.of(rows))

    def group(self, found: Rows) -> Group:
        """Raises ValueError where the table's columns aren't known or the row doesn't fit them."""
        row = found.row
        table = self.schemas.at(found.db, found.table, self.addresses[row.at], place(row.gtid, row.time))
        return group_of(table, found.names, len(row.where), len(row.field))

    def rows(self) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
        """EVENT batches of all rows with their places; puts the schema events beside."""
        first: dict[str, tuple[_Place, Table]] = {}
        for group, parts in self.groups.items():
            table = group.table

            def fail(row: Row, error: BaseException, group: Group = group) -> None:
                self.rare.append(((row.at, 1), {**of_row(group, row, self.options), **error_event(error)}))

            for batch, at in convert_rows(self.messages, group, Changes.together(parts), self.options, fail):
                yield batch, np.column_stack((at, np.ones(len(at), np.int64)))
                if len(group.columns) == len(table.names):
                    seen, here = first.get(table.version), (at[0], 0)
                    first[table.version] = (here, table) if seen is None or here < seen[0] else seen
        self.rare.extend((here, table.schema_event()) for here, table in first.values())


def decode(messages: pa.RecordBatch, options: TdsqlOptions, told: States | None = None) -> pa.RecordBatch:
    """MESSAGE batch → EVENT batch, in the order of the messages; never raises for bad bytes. `told`: the tables'
    columns over time, as `schemas.context` gives them."""
    with collection_paused():
        return _decode(_Batch(messages, options, told))


def _decode(work: _Batch) -> pa.RecordBatch:
    work.read()
    batches, places = [], []
    for batch, at in work.rows():
        batches.append(batch)
        places.append(at)
    if work.rare:
        batches.append(rare_batch(work.messages, work.rare))
        places.append(np.array([at for at, _ in work.rare]))
    return in_order(batches, np.concatenate(places)) if batches else event_batch([])


FORMAT = Format(
    name="tdsql",
    version="1",
    summary="Tencent TDSQL's and TencentDB for MariaDB's binlog as JSON, rows by column position",
    options=TdsqlOptions,
    decode=decode,
    liveness=Liveness("TDSQL's messages promise no heartbeats"),
    context=ContextOf(build=context, marker=b'"query"', waiting=UNKNOWN),
    transactions="brackets",
    limits=(
        Limit(
            "it comes as text without a zone and is read in UTC: option time_zone names the server's",
            of("timestamp"),
            unless="time_zone",
        ),
        Limit("it may be sent with six digits only", lambda t: t.spark == "float"),
        Limit("a text ##isnull## arrives as NULL", of("text")),
    ),
)
