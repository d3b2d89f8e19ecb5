"""Why rows differ: what is noted of the change that wrote each last, in use and in the replay. Which of several things
that differ is the cause isn't known; all of them are told."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_platform.changes import in_force
from cdc_platform.config import Config, Source
from cdc_platform.lake import queries, stores
from cdc_platform.replay import kept
from cdc_platform.spark import delta_sql
from cdc_platform.spark.row_diff import Wrong
from cdc_platform.tables import CHANGELOG, CHANGES, DECODED_WITH, MESSAGE_AT, QUARANTINE

_AT = [*MESSAGE_AT, "entry", "row"]
_FACTS = ["there", "decoder", "version"]
NOT_TOLD = "nothing that is noted of the change differs"


@dataclass(frozen=True)
class Reasons:
    """Of one source. config, side: of the lake in use, and of the replay's; replayed: the source with its options."""

    spark: SparkSession
    config: Config
    side: Config
    replayed: Source

    def of(self, wrong: Wrong) -> list[dict[str, Any]]:
        """column (None: of whole rows), reason, rows; the most rows first."""
        told: dict[tuple[str | None, str], int] = {}
        for group in self._groups(wrong).collect():  # a row per column, column lists and decoders
            for reason in self._of_group(group.asDict()) or [NOT_TOLD]:
                at = group["column"], reason
                told[at] = told.get(at, 0) + int(group["rows"])
        ordered = sorted(told.items(), key=lambda item: (-item[1], item[0][0] or "", item[0][1]))
        return [{"column": column, "reason": reason, "rows": rows} for (column, reason), rows in ordered]

    # -- the facts, in Spark -------------------------------------------------------------------------------

    def _groups(self, wrong: Wrong) -> DataFrame:
        """Rows that differ, by column and by what is noted of their changes on either side."""
        rows = wrong.rows.select("kind", "n", "differ", "u_order", "r_order")
        for order, config in (("u_order", self.config), ("r_order", self.side)):
            at = self._changelog(config).select("order_key", F.struct(*_AT).alias(f"{order}_at"))
            at = at.dropDuplicates(["order_key"]).withColumnRenamed("order_key", f"{order}_key")
            rows = rows.join(at, F.col(order) == F.col(f"{order}_key"), "left")
        newer = F.col("u_order").isNull() | (F.col("r_order") >= F.col("u_order"))  # the change that came last
        rows = rows.withColumn("at", F.when(newer, F.col("r_order_at")).otherwise(F.col("u_order_at")))
        rows = rows.select("kind", "n", "differ", *(F.col(f"at.{c}").alias(c) for c in _AT))
        for side, config in (("u", self.config), ("r", self.side)):
            noted = self._changelog(config).dropDuplicates(_AT).select(*_AT, *_renamed(_FACTS, side))
            held = self._held(config).select(*MESSAGE_AT, F.col("reason").alias(f"{side}_held"))
            rows = rows.join(noted, _AT, "left").join(held, [*MESSAGE_AT], "left")
        rows = rows.join(self._redecoded(), [*MESSAGE_AT], "left")
        assert self.side.replay is not None
        before = kept.before(self.side.replay.since)  # not decoded again: by the same decoder, then
        rows = rows.withColumn("r_decoder", F.when(before, F.col("u_decoder")).otherwise(F.col("r_decoder")))
        by = ["kind", *(f"{s}_{f}" for s in "ur" for f in _FACTS), "u_kept", "r_kept", "options"]
        holds = {f"{s}_kept": F.col(f"{s}_held").isNotNull() & F.col(f"{s}_there").isNull() for s in "ur"}
        untold = before | F.coalesce("retold", F.lit(False))
        options = F.when(untold, F.lit(-1)).otherwise(self._options_number())
        rows = rows.withColumns({**holds, "options": options}).withColumn("column", F.explode_outer("differ"))
        examples = [F.min(f"{s}_held").alias(f"{s}_held") for s in "ur"]
        return rows.groupBy("column", *by).agg(F.sum("n").alias("rows"), *examples)

    def _changelog(self, config: Config) -> DataFrame:
        rows = delta_sql.read(self.spark, CHANGELOG.at(stores.lake(config))).where(F.col("source") == self._name)
        facts = {"there": F.lit(True), "decoder": F.col("decoder_version"), "version": F.col("schema_version")}
        address = {"entry": _number("entry_index"), "row": _number("row_index")}
        return rows.withColumns({**facts, **address})

    def _held(self, config: Config) -> DataFrame:
        rows = delta_sql.read(self.spark, QUARANTINE.at(stores.lake(config)))
        rows = rows.where((F.col("source") == self._name) & F.col("resolved_at").isNull())
        return rows.groupBy(*MESSAGE_AT).agg(F.min("reason").alias("reason"))

    def _redecoded(self) -> DataFrame:
        """Messages that were decoded more than once in use: with which options at last isn't noted."""
        path = CHANGES.at(stores.lake(self.config), format=self.replayed.format, source=self._name)
        rows = delta_sql.read(self.spark, path).where("retold")
        return rows.select(*MESSAGE_AT).distinct().withColumn("retold", F.lit(True))

    def _options_number(self) -> Column:
        """Of the options that were in force when a message came."""
        number = F.lit(-1)
        place = F.concat_ws("/", F.col("topic"), F.col("partition").cast("string"))
        for one in self._options:
            since = F.from_json(F.lit(json.dumps(dict(one["offsets"] or ()))), "map<string,bigint>")
            begun = F.col("offset") >= F.coalesce(F.try_element_at(since, place), F.lit(0))
            number = F.when(begun, F.lit(one["number"])).otherwise(number)
        return number

    # -- in words ------------------------------------------------------------------------------------------

    def _of_group(self, group: Mapping[str, Any]) -> list[str]:
        if group["u_kept"]:
            return [f"held in quarantine in use: {group['u_held']}"]
        if group["r_kept"]:
            return [f"held in quarantine by the replay: {group['r_held']}"]
        if not group["u_there"] or not group["r_there"]:
            return [f"no such change {'by the replay' if group['u_there'] else 'in use'}"]
        found = []
        if group["u_decoder"] != group["r_decoder"]:
            found.append(f"decoder {group['u_decoder']} is {group['r_decoder']}")
        found += self._option_changes(group["options"])
        was, now = (self._type(s, group[f"{s}_version"], group["column"]) for s in "ur")
        if was != now:
            found.append(f"type {was or 'not known'} is {now or 'not known'}")
        return found

    def _option_changes(self, number: int) -> list[str]:
        before = next((json.loads(o["options"]) for o in self._options if o["number"] == number), None)
        if before is None:
            return []
        now = in_force.values(self.replayed)
        return [
            f"option {name}: {json.dumps(before.get(name))} is {json.dumps(now.get(name))}"
            for name in sorted({*before, *now} - {"format"})
            if before.get(name) != now.get(name)
        ]

    def _type(self, side: str, version: str | None, column: str | None) -> str | None:
        lists = self._lists(self.config if side == "u" else self.side, version)
        return next((c["type"] for c in lists if c["name"] == column), None)

    def _lists(self, config: Config, version: str | None) -> list[dict[str, Any]]:
        if version is None:
            return []
        found = queries.column_lists(config, self.replayed, [version])
        return json.loads(found.get(version) or "[]")

    @property
    def _name(self) -> str:
        return self.replayed.name

    @cached_property
    def _options(self) -> list[dict[str, Any]]:
        """Options in force in use, the first first."""
        return options_in_use(self.config, self.replayed)


def options_in_use(config: Config, source: Source) -> list[dict[str, Any]]:
    """number, decoder_version, options (JSON), offsets (since which), the first first."""
    found = queries.query(
        "SELECT number, decoder_version, options, offsets FROM t "
        f"WHERE source = {queries.text(source.name)} ORDER BY number",
        t=DECODED_WITH.at(stores.lake(config)),
    )
    return found or []


def decoders(config: Config, source: Source) -> list[dict[str, Any]]:
    """decoder_version, changes: of the rows of the changelog."""
    found = queries.query(
        f"SELECT decoder_version, count(*) AS changes FROM t WHERE source = {queries.text(source.name)} "
        "GROUP BY 1 ORDER BY 1",
        t=CHANGELOG.at(stores.lake(config)),
    )
    return found or []


def _number(column: str) -> Column:
    return F.coalesce(column, F.lit(-1))


def _renamed(names: Iterable[str], side: str) -> list[Column]:
    return [F.col(n).alias(f"{side}_{n}") for n in names]
