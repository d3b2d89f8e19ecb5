"""The Delta tables of one source table: made, evolved, made anew."""

import json
from pathlib import Path
from typing import Any

import pytest

from cdc_platform.mysql.types import parse_type
from cdc_platform.snapshots import together
from cdc_platform.snapshots.apply import prepare
from cdc_platform.snapshots.schema.columns import TableColumn
from cdc_platform.snapshots.target import Target
from cdc_platform.spark import delta_sql
from tests.changelog.feed import Feed, Image, SourceTable
from tests.lakes import store_at

pytestmark = pytest.mark.spark


def columns(**types: str) -> list[TableColumn]:
    return [TableColumn(name, parse_type(type_), name == "id") for name, type_ in types.items()]


@pytest.mark.parametrize("anew", [False, True], ids=["added", "made anew"])
def test_the_first_datetime_column_of_a_table(spark: Any, make_config: Any, anew: bool) -> None:
    target = Target.of(make_config([{"name": "s", "format": "canal", "topics": ["t"]}]), "s", "d", "t")
    prepare.prepare(spark, target, columns(id="int"))
    key = "datetime" if anew else "int"
    (prepare.empty if anew else prepare.prepare)(spark, target, columns(id=key, at="datetime(6)"))
    found = {f.name: f.dataType.simpleString() for f in delta_sql.read(spark, target.snapshot).schema.fields}
    assert found["at"] == "timestamp_ntz"
    assert found["id"] == ("timestamp_ntz" if anew else "int")


def commits(snapshot: str) -> list[list[dict[str, Any]]]:
    """Actions of each commit, from the first on."""
    files = sorted(Path(snapshot, "_delta_log").glob("*.json"))
    return [[json.loads(line) for line in f.read_text().splitlines()] for f in files]


def marked(snapshot: str) -> bool:
    """Whether the newest commit marks rows as deleted; False: it wrote their files anew."""
    return any(action.get("add", {}).get("deletionVector") for action in commits(snapshot)[-1])


def compacted(snapshot: str) -> int:
    """How often files were put together."""
    found = [a["commitInfo"]["operation"] for actions in commits(snapshot) for a in actions if "commitInfo" in a]
    return found.count("OPTIMIZE")


@pytest.mark.thorough
def test_rows_are_marked_once_the_table_is_large_and_files_put_together_once_they_are_many(
    spark: Any, make_config: Any, monkeypatch: Any
) -> None:
    keyed, bare = (SourceTable("d", n, [("id", "int"), ("a", "int")], k) for n, k in (("keyed", ("id",)), ("bare", ())))
    feed = Feed(spark, make_config([{"name": "s", "format": "canal", "topics": ["t"]}]), "s")
    rows: list[Image] = [{"id": str(i), "a": "2"} for i in range(40)]
    for t, pos in ((keyed, 100), (bare, 200)):
        feed.say(t.stated(), *(t.insert((1, pos + i), r) for i, r in enumerate(rows)))
    feed.catch_up()
    monkeypatch.setattr(together, "_FEW", 0)  # as with many changes
    few = prepare.MANY_FILES
    steps = ((prepare.features.SMALL, few, 0), (0, few, 0), (0, 2, 1), (0, 2, 1 << 25))
    for n, (size, files, below) in enumerate(steps):
        pos = 300 + 10 * n
        monkeypatch.setattr(prepare.features, "SMALL", size)
        monkeypatch.setattr(prepare, "MANY_FILES", files)
        if below:  # looked at, but not by OPTIMIZE itself, which would leave larger files alone anyway
            monkeypatch.setattr(prepare, "_MIN_FILE", "cdc.not.set")
            monkeypatch.setattr(prepare, "_ITS_DEFAULT", str(below))
        old, rows[n] = rows[n], {"id": str(n), "a": str(pos)}
        feed.say(*(t.update((1, pos + i), old, rows[n]) for i, t in enumerate((keyed, bare))))
        feed.catch_up()
        for t in ("keyed", "bare"):
            assert marked(feed.target("d", t).snapshot.uri()) == (size == 0)
            assert compacted(feed.target("d", t).snapshot.uri()) == (files == 2 and below > 1)
            assert sorted(r["a"] for r in feed.live("d", t)) == sorted(int(r["a"] or 0) for r in rows)


def test_small_rows_are_read_in_bulk_and_large_ones_are_not(spark: Any, tmp_path: Path) -> None:
    """As long as nothing else is read; and a number of the user's own stays."""
    paths = {name: store_at(tmp_path / f"{name} ü") for name in ("small", "large", "wide", "none")}
    for name, row in (("small", "id AS a"), ("large", "repeat(uuid(), 1000) AS a")):
        spark.range(300).selectExpr(row).write.format("delta").save(paths[name].uri())
    spark.range(300).selectExpr(*(f"NULL::INT AS c{i}" for i in range(400))).write.format("delta").save(
        paths["wide"].uri()
    )
    told = lambda: int(spark.conf.get(prepare.ROWS_AT_ONCE))  # noqa: E731
    few = int(prepare.FEW_ROWS_AT_ONCE)

    def within(*names: str) -> int:
        with prepare.read_in_bulk(spark, [paths[n] for n in names]):
            return told()

    assert told() == few
    assert within("small") == 4096
    assert few < within("small", "wide") < 500
    assert within("small", "large") == within("small", "none") == within() == told() == few
    with pytest.raises(ZeroDivisionError), prepare.read_in_bulk(spark, [paths["small"]]):
        raise ZeroDivisionError
    assert told() == few
    spark.conf.set(prepare.ROWS_AT_ONCE, "128")
    try:
        assert within("small") == 128
    finally:
        spark.conf.set(prepare.ROWS_AT_ONCE, str(few))
