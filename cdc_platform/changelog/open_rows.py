"""Changelog rows of a column list that stand where something speaks against it, and those that another decoder gave:
for Spark and as DataFusion's SQL."""

from functools import reduce
from operator import and_, gt, lt, or_

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_platform.formats.table_schemas.doubts import Doubt, Stretch
from cdc_platform.formats.table_schemas.places import Place
from cdc_platform.lake import delta_table

_SIDES = {"<": lt, ">": gt}


def may_differ(doubt: Doubt) -> Column:
    """Whether a changelog row doesn't stand for sure where rows are right."""
    return ~reduce(or_, (_in(stretch) for stretch in doubt.right), F.lit(False))


def _in(stretch: Stretch) -> Column:
    ends = ([] if stretch.behind is None else [(stretch.behind, ">")]) + [(place, "<") for place in stretch.before]
    return reduce(and_, (_stands(place, side) for place, side in ends), F.lit(True))


def _stands(place: Place, side: str) -> Column:
    """Whether all that is told of a changelog row's place says that it is before this one (`<`) or behind it (`>`),
    and something does."""
    said: list[tuple[Column, Column]] = []
    is_ = _SIDES[side]
    here = (F.col("topic") == place.topic) & (F.col("partition") == place.partition)
    said.append((here, is_(F.col("offset"), F.lit(place.offset))))
    if place.number is not None:
        number = [F.lit(str(n)).cast("decimal(38,0)") for n in place.number]
        own = [F.col(f"order_key.{n}").cast("decimal(38,0)") for n in ("file", "pos")]
        said.append((F.col("order_key.file") >= 0, is_(F.struct(*own), F.struct(*number))))
    if place.time is not None:
        said.append((F.col("source_time").isNotNull(), is_(F.unix_micros("source_time"), F.lit(place.time))))
    some = reduce(or_, (told for told, _ in said))
    return some & reduce(and_, (F.coalesce(~told | so, F.lit(False)) for told, so in said))


def may_differ_sql(version: str, doubt: Doubt) -> str:
    """Whether a row has this list and `may_differ`, where a table's columns have their own names."""
    right = " OR ".join(f"coalesce({_in_sql(stretch)}, false)" for stretch in doubt.right) or "false"
    return f"(schema_version IN ({delta_table.digests([version])}) AND NOT ({right}))"


def _in_sql(stretch: Stretch) -> str:
    ends = ([] if stretch.behind is None else [(stretch.behind, ">")]) + [(place, "<") for place in stretch.before]
    return "(" + (" AND ".join(_stands_sql(place, side) for place, side in ends) or "true") + ")"


def _stands_sql(place: Place, is_: str) -> str:
    here = f"topic = '{delta_table.topic(place.topic)}' AND \"partition\" = {int(place.partition)}"
    said = [(here, f'"offset" {is_} {int(place.offset)}')]
    if place.number is not None:
        file, pos = (f"CAST(order_key['{n}'] AS DECIMAL(38, 0))" for n in ("file", "pos"))
        at = [f"CAST('{int(n)}' AS DECIMAL(38, 0))" for n in place.number]
        said.append(("order_key['file'] >= 0", f"({file} {is_} {at[0]} OR ({file} = {at[0]} AND {pos} {is_} {at[1]}))"))
    if place.time is not None:
        said.append(("source_time IS NOT NULL", f"CAST(source_time AS BIGINT) {is_} {int(place.time)}"))
    some = " OR ".join(f"({told})" for told, _ in said)
    return f"(({some}) AND {' AND '.join(f'coalesce(NOT ({t}) OR ({b}), false)' for t, b in said)})"


def not_by(decoder: str) -> Column:
    """Whether a changelog row was decoded by another one than that (changes/decoded_by.py), or it isn't noted."""
    return ~F.col("decoded_by").eqNullSafe(F.lit(decoder))


def not_by_sql(decoder: str) -> str:
    """The same."""
    return f"(decoded_by IS DISTINCT FROM {delta_table.digests([decoder])})"
