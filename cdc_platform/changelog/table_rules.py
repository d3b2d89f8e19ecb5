"""Which tables were followed when: the configuration's rules as they were in force, stage by stage.

A change of rules is noted twice: when it is begun, with all that doing it once more needs, and when it is done. A run
that finds one begun does that one first, whatever the configuration says by then.
"""

from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from cdc_platform.config import Config, Source, Tables
from cdc_platform.lake import delta_table, stores
from cdc_platform.spark import delta_sql
from cdc_platform.tables import TABLE_RULES


@dataclass(frozen=True, slots=True)
class Rules:
    """One state of the rules. version: of `changes`, up to which the rules before them had been applied."""

    number: int
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    routes: tuple[tuple[str, str], ...] = ()
    version: int | None = None

    @staticmethod
    def of(source: Source, number: int, version: int | None = None, *, routes: bool = False) -> "Rules":
        """Those of the configuration."""
        t = source.tables
        kept, left_out = (tuple(sorted(set(patterns))) for patterns in (t.include, t.exclude))
        return Rules(number, kept, left_out, tuple(t.routes.items()) if routes else (), version)

    def same(self, other: "Rules") -> bool:
        """Whether they choose alike."""
        return (self.include, self.exclude, self.routes) == (other.include, other.exclude, other.routes)

    def tables(self, source: Source) -> Tables:
        """The source's tables section with these rules."""
        rules = {"include": list(self.include), "exclude": list(self.exclude), "routes": dict(self.routes)}
        return source.tables.model_copy(update=rules)


class RulesInEffect:
    """The rules of one source in one stage."""

    def __init__(self, spark: SparkSession, config: Config, source: Source, room: str):
        self._spark, self._source, self._room = spark, source, room
        self._path = delta_sql.ensure(TABLE_RULES, TABLE_RULES.at(stores.lake(config)))
        rows = delta_table.ask(
            'SELECT number, stage, "include", "exclude", routes, version FROM {rules} '
            f"WHERE source = '{source.name}' AND room = '{room}' ORDER BY number",
            rules=self._path,
        )
        self.done = [_rules(r) for r in rows if r["stage"] == "done"]
        known = {r.number for r in self.done}
        self.begun = next((_rules(r) for r in rows if r["number"] not in known), None)

    def note(self, rules: Rules, stage: str) -> None:
        """Keep that a change is begun, or done; once."""
        row = {
            "source": self._source.name,
            "room": self._room,
            "number": rules.number,
            "stage": stage,
            "include": list(rules.include),
            "exclude": list(rules.exclude),
            "routes": [(p, t) for p, t in rules.routes],
            "version": rules.version,
        }
        own = f"source = '{self._source.name}' AND room = '{self._room}'"
        noted = f"{own} AND number = {rules.number} AND stage = '{stage}'"
        delta_table.append_rows(self._path, [row], of=noted)
        if stage == "done":
            self.done.append(rules)
        self.begun = rules if stage == "begun" else None


def _rules(row: Any) -> Rules:
    routes = tuple((r["pattern"], r["target"]) for r in row["routes"])
    return Rules(row["number"], tuple(row["include"]), tuple(row["exclude"]), routes, row["version"])
