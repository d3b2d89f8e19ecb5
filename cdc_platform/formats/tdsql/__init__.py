"""Tencent TDSQL's (and TencentDB for MariaDB's) binlog as JSON, one message per row, DDL and transaction mark.

Facts: Tencent Cloud documentation 237/35420 ("Binlog Consumption Format"); messages and readers in public
repositories (sync2any). A row is two lists of literals by position; names, types and keys come from the DDL
seen in the topic and from a file of CREATE TABLE statements (`schemas`). `eventtype` is a number that differs
between server versions, so `eventtypestr` decides. `orgoffset` and `sequence_num` count messages, not bytes of
the binlog (both step by the number of messages in between, and `sequence_num` starts anew with a task), so they
order nothing across tasks: changes are ordered by the topic, or by GTID at will.
"""

from functools import partial
from typing import Any

import pyarrow as pa

from cdc_platform.formats.collect import Collector, Converted, Table
from cdc_platform.formats.contract import Beat, Format, Limit, Liveness
from cdc_platform.formats.contract import Context as ContextOf
from cdc_platform.formats.events import Addresses, Event, collection_paused
from cdc_platform.formats.limits import of
from cdc_platform.formats.table_schemas.states import States
from cdc_platform.formats.tdsql.evidence import shown_options
from cdc_platform.formats.tdsql.messages import Changes, Row, Rows, names_of, place, read
from cdc_platform.formats.tdsql.options import TdsqlOptions
from cdc_platform.formats.tdsql.rows import Group, convert, group_of, of_row
from cdc_platform.formats.tdsql.scanner import Scanner
from cdc_platform.formats.tdsql.schemas import Schemas, context
from cdc_platform.formats.tdsql.sets import SENDERS, Emptied


class _Collector(Collector[Group, Changes, Table]):
    CHANGES = Changes

    def __init__(self, messages: pa.RecordBatch, options: TdsqlOptions, states: States | None):
        self.schemas = Schemas(states, options, Emptied(states, options.sets))
        self.address = Addresses(messages)
        super().__init__(messages, Scanner(self.schemas, self.address, options))
        self.options = options

    def read(self, at: int, message: Any) -> None:
        found = read(at, message, self.options, partial(self.schemas.emptied.reason, self.address, at))
        if isinstance(found, Rows):
            row = found.row
            where = place(row.gtid, row.time)
            table = self.schemas.at(found.db, found.table, self.address(at), where, found.prefix)
            self.add(group_of(table, found.names, len(row.where), len(row.field), self.options), row)
        else:
            self.rare.extend((at, event) for event in found)

    def of_message(self, _at: int, message: Any) -> Event:
        return names_of(message, self.options)

    def of_row(self, group: Group, row: Row) -> Event:
        return of_row(group, row, self.options)

    def table(self, group: Group) -> Table:
        return group.table

    def convert(self, group: Group, _table: Table, rows: Changes) -> Converted[Changes]:
        return convert(self.messages, group, rows, self.options)


def decode(messages: pa.RecordBatch, options: TdsqlOptions, states: States | None = None) -> pa.RecordBatch:
    """MESSAGE batch → EVENT batch, in the order of the messages; never raises for bad bytes. `states`: the tables'
    columns over time, as `schemas.context` gives them."""
    with collection_paused():
        return _Collector(messages, options, states).decode()


FORMAT = Format(
    name="tdsql",
    version="2",
    summary="Tencent TDSQL's and TencentDB for MariaDB's binlog as JSON, rows by column position",
    options=TdsqlOptions,
    decode=decode,
    log_times=frozenset({"row", "ddl", "begin", "commit", "heartbeat"}),
    beats=(Beat("heartbeat"),),
    liveness=Liveness("TDSQL's messages promise no heartbeats"),
    context=ContextOf(build=context, marker='query"', senders=SENDERS),
    evidence=shown_options,
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
