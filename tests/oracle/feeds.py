"""Each format's encoder over the oracle's transactions, and what its messages can't tell."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from cdc_platform.feeds.canal import CanalEncoder
from cdc_platform.feeds.canal_json import CanalJsonEncoder
from cdc_platform.feeds.dataworks import DataworksEncoder
from cdc_platform.feeds.debezium import DebeziumEncoder
from cdc_platform.feeds.publish import Record
from cdc_platform.feeds.shop import Column
from cdc_platform.feeds.tdsql import TdsqlEncoder
from cdc_platform.feeds.tencent_dts import DtsEncoder
from cdc_platform.feeds.workload import Transaction
from cdc_platform.formats import FORMATS
from cdc_platform.formats.pb import tencent_dts_pb2 as pb
from tests.oracle.catalog import Text, trimmed

Sent = Callable[[Column, Text], Text]


def _whole(_column: Column, text: Text) -> Text:
    return text


def is_zero(column: Column, text: Text) -> bool:
    """Whether it is a date that doesn't exist."""
    return column.base in ("date", "datetime", "timestamp") and text is not None and text.startswith("0000-00-00")


def _no_zero(column: Column, text: Text) -> Text:
    """Debezium has NULL for a date that doesn't exist, and the epoch where the column is NOT NULL."""
    if not is_zero(column, text) or column.nullable:
        return None if is_zero(column, text) else text
    return {"date": "1970-01-01", "timestamp": "1970-01-01 00:00:00Z"}.get(column.base, "1970-01-01 00:00:00")


def _milliseconds(column: Column, text: Text) -> Text:
    """DataWorks' DATE counts milliseconds."""
    if text is None or is_zero(column, text):
        return None
    if column.base not in ("datetime", "timestamp"):
        return text
    clock, _, fraction = text.removesuffix("Z").partition(".")
    return trimmed(f"{clock}.{fraction[:3]}") + ("Z" if text.endswith("Z") else "")


def _not_null(_column: Column, text: Text) -> Text:
    """TDSQL writes NULL as a text that a text may hold."""
    return None if text == "##isnull##" else text


@dataclass(frozen=True, slots=True)
class Feed:
    """`encoder` makes a fresh one; `as_sent` (column, canonical text) → the text as far as messages can tell it."""

    encoder: Callable[[], Any]
    as_sent: Sent = _whole
    split: bool = False  # messages come in envelopes


FEEDS = {
    "tencent_dts": Feed(lambda: DtsEncoder("feed"), split=True),
    "debezium": Feed(lambda: DebeziumEncoder("feed"), _no_zero),
    "canal_json": Feed(lambda: CanalJsonEncoder("feed")),
    "canal": Feed(lambda: CanalEncoder("feed")),
    "dataworks": Feed(lambda: DataworksEncoder("feed"), _milliseconds),
    "tdsql": Feed(lambda: TdsqlEncoder("feed"), _not_null),
}


def options(format: str, transactions: Iterable[Transaction]) -> Any:
    """Options of a source that reads the feed, between two DDL statements. DataWorks' messages know six types: the real
    ones are told, and one option can't tell a column's earlier type from its later one."""
    if format != "dataworks":
        return FORMATS[format].options()
    columns: dict[str, dict[str, str]] = {}
    for tx in transactions:
        for change in tx.events:
            columns.setdefault(change.table.full_name, {}).update({c.name: c.type for c in change.table.columns})
    return FORMATS[format].options(columns=columns)


def whole(records: Iterable[Record]) -> Iterator[Record]:
    """Records with split messages put together."""
    parts: list[bytes] = []
    for record in records:
        envelope = pb.Envelope.FromString(record.value or b"")
        parts.append(envelope.data)
        if envelope.index + 1 == envelope.total:
            yield record._replace(value=b"".join(parts))
            parts = []
