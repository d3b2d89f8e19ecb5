"""Where a replay begins: messages before stay as they were decoded in use."""

import re
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from cdc_platform.changes import files, in_force
from cdc_platform.config import Config, Source
from cdc_platform.config.replay import Start
from cdc_platform.errors import ConfigError, NotReadable
from cdc_platform.lake import delta_table, stores
from cdc_platform.replay.present import Present
from cdc_platform.spark import delta_sql
from cdc_platform.tables import CHANGES

_GIVEN = re.compile(r"(?:(?P<topic>[a-zA-Z0-9._-]+)/(?P<partition>\d{1,9})/)?(?P<offset>\d{1,18})")
_FORM = "TOPIC/PARTITION/OFFSET"


def starts(config: Config, source: Source, given: Iterable[str]) -> tuple[Start, ...]:
    """topic/partition/offset, or an offset alone where the source has one partition. Raises ConfigError where it isn't
    so, or messages up to there aren't decoded yet."""
    reached = in_force.decoded(config, source)
    found: dict[str, Start] = {}
    for text in given:
        told = _GIVEN.fullmatch(text)
        if told is None or (told["topic"] is None and len(reached) != 1):
            raise ConfigError("--from", f"{text!r} names no offset of one partition", [_FORM, *_shown(reached)])
        place = next(iter(reached)) if told["topic"] is None else f"{told['topic']}/{int(told['partition'])}"
        if int(told["offset"]) > reached.get(place, -1):
            raise ConfigError("--from", f"{text!r}: no message up to there is decoded", _shown(reached))
        topic, _, partition = place.rpartition("/")
        found[place] = (topic, int(partition), int(told["offset"]))
    return tuple(sorted(found.values()))


def _shown(reached: dict[str, int]) -> list[str]:
    """The last offset of each partition that is decoded. One past it will do, too: nothing is decoded again."""
    return [f"up to {place}/{offset - 1}" for place, offset in sorted(reached.items())[:20]]


def before(since: Sequence[Start]) -> Column:
    """Whether a row is of a message before the start of its partition."""
    each = (
        (F.col("topic") == F.lit(topic)) & (F.col("partition") == partition) & (F.col("offset") < offset)
        for topic, partition, offset in since
    )
    return reduce(or_, each, F.lit(False))


def keep(spark: SparkSession, config: Config, source: Source, now: Present, side: Config) -> None:
    """Puts what was decoded before the start into the side lake, once, in the order in which it came. Raises
    NotReadable where some of it was decoded more than once: which telling is to stay isn't said."""
    assert side.replay is not None
    there, here = (CHANGES.at(stores.lake(of), format=source.format, source=source.name) for of in (config, side))
    if not side.replay.since or delta_table.version(delta_sql.ensure(CHANGES, here)) > 0:
        return
    every = spark.read.format("delta").option("versionAsOf", now.changes).load(there.spark_uri())
    kept = every.where(before(side.replay.since))
    again = (
        kept.where("retold").agg(F.min(F.struct("topic", "partition", "offset")).alias("first")).collect()[0]["first"]
    )
    if again is not None:
        where = "/".join(map(str, again))
        problem = f"messages before were decoded again when they had been held, the first at {where}"
        raise NotReadable("--from", problem, [f"{where} or before", "all of it"])
    message = ("landed_at", "topic", "partition", "offset")  # a file has all events of a message
    ordered = kept.withColumn("_came", F.monotonically_increasing_id()).repartitionByRange(*message)
    files.append(ordered.sortWithinPartitions(*message, "_came").drop("_came"), here)
