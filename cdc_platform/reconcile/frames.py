"""The same sums, digests and rows of a DataFrame: a snapshot, or an export read in the snapshot's types."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_platform.reconcile.columns import Pair, Pairing
from cdc_platform.reconcile.texts import NO_TEXT_IN_SNAPSHOT, NULL
from cdc_platform.spark.delta_sql import quoted

Sums = dict[int, tuple[int, int, int]]
"""bucket → rows, and two sums of their digests."""
_SUM = "decimal(38,0)"


@dataclass(frozen=True, slots=True)
class Differing:
    """A key whose rows differ. kind: missing, extra, changed; expected: state of its rows at the source
    (count:lowest digest:highest digest), None when there is none; keys: texts to find its row by; actual: as
    expected, of the snapshot."""

    digest: str
    kind: str
    expected: str | None
    keys: tuple[str, ...]
    actual: str | None = None


def state(count: int, lowest: str, highest: str) -> str:
    """All rows of one key as one text, as `_states` makes it."""
    return f"{count}:{lowest}:{highest}"


def _cell(pair: Pair) -> Column:
    column = F.col(quoted(pair.snapshot))
    return F.when(column.isNull(), F.lit(NULL)).otherwise(
        F.coalesce(pair.text.frame(column, pair.spark), F.lit(NO_TEXT_IN_SNAPSHOT))
    )


def _joined(pairs: Sequence[Pair]) -> Column:
    return F.concat_ws(",", *(_cell(p) for p in pairs))


def _hashed(rows: DataFrame, pairing: Pairing, buckets: int, *more: Column) -> DataFrame:
    """b (bucket), kd (digest of the key), h (digest of the row) and what else is asked for, of every row. In one
    select: no name of ours meets one of the table's."""
    key = _joined(pairing.keys)
    digest = F.md5(_joined(pairing.pairs)).alias("h")
    return rows.select((F.crc32(key) % buckets).alias("b"), F.md5(key).alias("kd"), digest, *more)


def sums(rows: DataFrame, pairing: Pairing, buckets: int) -> Sums:
    """What `statements.sums` gives of a source table."""
    low, high = (F.conv(F.substring("h", at, 15), 16, 10).cast(_SUM) for at in (1, -15))
    found = (
        _hashed(rows, pairing, buckets)
        .groupBy("b")
        .agg(F.count(F.lit(1)).alias("n"), F.sum(low).alias("s1"), F.sum(high).alias("s2"))
        .collect()
    )
    return {int(r["b"]): (int(r["n"]), int(r["s1"]), int(r["s2"])) for r in found}


def digests(rows: DataFrame, pairing: Pairing, buckets: int, chosen: Sequence[int]) -> DataFrame:
    """kd, h, keys (array of texts) of the rows in these buckets: what `statements.digests` gives."""
    texts = [p.text.key.frame(F.col(quoted(p.snapshot)), _cell(p)) for p in pairing.keys] if pairing.keyed else []
    keys = (F.array(*texts) if texts else F.array().cast("array<string>")).alias("keys")
    return _hashed(rows, pairing, buckets, keys).where(F.col("b").isin(*chosen)).drop("b")


def _states(hashed: DataFrame) -> DataFrame:
    """One row per key: a table without a key has equal rows, and a broken snapshot may have a key twice."""
    parts = F.count(F.lit(1)).cast("string"), F.min("h"), F.max("h")
    return hashed.groupBy("kd").agg(F.concat_ws(":", *parts).alias("state"), F.first("keys").alias("keys"))


def differences(expected: DataFrame, actual: DataFrame, at_most: int) -> tuple[dict[str, int], list[Differing]]:
    """Keys whose rows differ between two frames of digests: counts per kind, and up to `at_most` of them."""
    e, a = _states(expected).alias("e"), _states(actual).alias("a")
    kind = (
        F.when(F.col("a.state").isNull(), "missing")
        .when(F.col("e.state").isNull(), "extra")
        .otherwise(F.lit("changed"))
    )
    wrong = (
        e.join(a, "kd", "full_outer")
        .where(~F.col("e.state").eqNullSafe(F.col("a.state")))
        .select(
            *("kd", kind.alias("kind"), F.col("e.state").alias("e"), F.col("a.state").alias("a")),
            F.coalesce("e.keys", "a.keys").alias("keys"),
        )
    )
    rows = wrong.limit(at_most + 1).collect()
    found = [Differing(r["kd"], r["kind"], r["e"], tuple(r["keys"]), r["a"]) for r in rows]
    if len(found) > at_most:
        counts = {r["kind"]: int(r["n"]) for r in wrong.groupBy("kind").agg(F.count(F.lit(1)).alias("n")).collect()}
    else:
        counts = {}
        for one in found:
            counts[one.kind] = counts.get(one.kind, 0) + 1
    return counts, found[:at_most]


def rows(frame: DataFrame, pairing: Pairing, wanted: Sequence[str]) -> list[tuple[Any, ...]]:
    """Digest of key; then per column its value for people and its text: what `statements.rows` gives."""
    columns = [c for p in pairing.pairs for c in (p.text.shown_frame(F.col(quoted(p.snapshot))), _cell(p))]
    named = [c.alias(f"c{i}") for i, c in enumerate(columns)]
    found = frame.select(F.md5(_joined(pairing.keys)).alias("kd"), *named).where(F.col("kd").isin(*wanted))
    return [tuple(r) for r in found.collect()]
