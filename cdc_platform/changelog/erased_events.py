"""Events that were erased at a subject's request, when a capture sends that part of its log again: they are known by
their places and by digests (table ERASURES), so that what comes with them isn't taken for another log's."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.changelog.epochs import Place
from cdc_platform.changelog.event_content import CONTENT, PLACE, comparable, digest
from cdc_platform.changelog.order import ADDRESS
from cdc_platform.config import Source
from cdc_platform.lake import delta_table, queries
from cdc_platform.lake.store import File, Store
from cdc_platform.spark import delta_sql
from cdc_platform.tables import CHANGES, LOADED, MESSAGE_AT


class Erased(NamedTuple):
    """An event, by which digest it is known, and the number of its erasure."""

    number: int
    salt: str
    topic: str
    partition: int
    offset: int
    entry_index: int | None
    row_index: int | None
    file_no: int
    binlog_pos: Decimal
    digest: str


_EVENT = ("topic", "partition", "offset", "entry_index", "row_index", "file_no", "binlog_pos", "digest")
_ERASED = (
    "number BIGINT, salt STRING, topic STRING, partition INT, offset BIGINT, entry_index INT, row_index INT, "
    "file_no BIGINT, binlog_pos DECIMAL(20,0), digest STRING"
)


def kept_events(spark: SparkSession, rows: Sequence[Mapping[str, Any]], salt: str) -> list[dict[str, Any]]:
    """Of rows of CHANGES those that have a place, as ERASURES keeps them (`events`). The platform's own loads aren't
    sent again."""
    of_log = (r for r in rows if r["kind"] == "row" and r["topic"] != LOADED)
    placed = [r for r in of_log if r["file_no"] is not None and r["binlog_pos"] is not None]
    if not placed:
        return []
    of = comparable(spark.createDataFrame(pa.Table.from_pylist(placed, CHANGES.arrow())))
    found = of.withColumn("digest", digest(F.lit(salt))).select(*_EVENT).distinct().collect()
    return sorted(({**r.asDict(), "binlog_pos": int(r["binlog_pos"])} for r in found), key=str)


def known(path: Store, source: Source) -> list[Erased]:
    """What was erased of a source. An erasure of an earlier version kept no places. path: of ERASURES."""
    if "events" not in (queries.columns(path) or ()):
        return []
    of = f"SELECT \"number\", salt, events FROM {{t}} WHERE source = '{source.name}' AND stage = 'begun'"
    rows = delta_table.ask(of, t=path)
    return [Erased(row["number"], row["salt"], **e) for row in rows for e in row["events"] or ()]


def among(spark: SparkSession, sent: DataFrame, erased: Sequence[Erased]) -> DataFrame:
    """Events (event_content.comparable) that were erased: `sent_*`, ADDRESS of what was sent again, PLACE and CONTENT,
    and `number` and ADDRESS of what was erased."""
    address = [F.col(c).alias(f"sent_{c}") for c in ADDRESS]
    mine = sent.select(*address, *PLACE, *CONTENT)
    there = F.broadcast(spark.createDataFrame([tuple(e) for e in erased], _ERASED))
    found = mine.join(there, [*PLACE]).where(digest(F.col("salt")) == F.col("digest"))
    return found.drop("salt", "digest")


def sent_again(
    spark: SparkSession,
    path: Store,
    source: Source,
    changes: Store,
    files: list[File],
    between: tuple[Place, Place] | None = None,
) -> DataFrame | None:
    """ADDRESS of the events in files of CHANGES that were erased before; None: there are none. Which messages hold them
    is noted: their bytes are in the lake again. between: the lowest and the highest place in the files."""
    erased = known(path, source)
    if between is not None:
        erased = [e for e in erased if between[0] <= (e.file_no, e.binlog_pos) <= between[1]]
    if not erased:
        return None
    sent = among(spark, comparable(delta_sql.rows_of(spark, changes, files)), erased)
    address = sent.select(*(F.col(f"sent_{c}").alias(c) for c in ADDRESS))
    found = sent.select("number", *(f"sent_{c}" for c in MESSAGE_AT)).distinct().collect()
    messages: dict[int, list[dict[str, Any]]] = {}
    for number, *message in sorted({tuple(r) for r in found} - _noted(path, source)):
        record = {**dict(zip(MESSAGE_AT, message, strict=True)), "digest": None, "shared": None}
        messages.setdefault(number, []).append(record)
    said = [{"source": source.name, "number": n, "stage": "again", "records": of} for n, of in messages.items()]
    delta_table.append_rows(path, said)
    return address if found else None


def _noted(path: Store, source: Source) -> set[tuple[Any, ...]]:
    """Numbers and messages: also those of a run that was killed behind it, or that a replay decodes once more."""
    of = f"SELECT \"number\", records FROM {{t}} WHERE source = '{source.name}' AND stage = 'again'"
    return {(row["number"], *(r[c] for c in MESSAGE_AT)) for row in delta_table.ask(of, t=path) for r in row["records"]}
