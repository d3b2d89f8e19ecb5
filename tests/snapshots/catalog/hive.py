"""What becomes of the tables of Spark's own Hive catalog while a source's tables come, change and go: a program, run by
test_metastore.py. Prints a JSON list on its last line. Argument: an empty folder."""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3]))

from cdc_platform.config import parse_config
from cdc_platform.spark.session import open_session
from tests.changelog.feed import Feed, SourceTable, position

DATABASE = "spark_catalog.s_shop"


def ddl(sql: str, pos: int) -> dict[str, Any]:
    return {"kind": "ddl", "db": "shop", "ddl": sql, **position(1, pos)}


def plain(spark: Any, sql: str) -> list[list[Any]]:
    return [list(json.loads(r).values()) for r in spark.sql(sql).toJSON().collect()]


def seen(feed: Feed, result: Any) -> dict[str, Any]:
    spark = feed.spark
    tables = sorted(r["tableName"] for r in spark.sql(f"SHOW TABLES IN {DATABASE}").collect())
    found: dict[str, Any] = {"tables": tables, "not_registered": result.metrics["not_registered"]}
    if "t" not in tables:
        return found
    names = [(f.name, f.dataType.simpleString()) for f in spark.table(f"{DATABASE}.t").schema]
    found["columns"] = [n for n in names if not n[0].startswith("_cdc_")]
    told = {r["col_name"]: r["data_type"] for r in spark.sql(f"DESCRIBE TABLE EXTENDED {DATABASE}.t").collect()}
    cells = ", ".join(f"CAST({n} AS {'STRING' if t.startswith('decimal') else t})" for n, t in found["columns"])
    rows = [list(r) for r in spark.sql(f"SELECT {cells} FROM {DATABASE}.t").collect()]
    return {**found, "comment": told["Comment"], "rows": rows}


def main(folder: Path) -> None:
    metastore = f"jdbc:derby:;databaseName={folder}/metastore;create=true"
    conf = {
        "spark.hadoop.javax.jdo.option.ConnectionURL": metastore,
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.driver.extraJavaOptions": f"-Dderby.stream.error.file={folder}/derby.log",
    }
    settings = {
        "lake": str(folder / "lake"),
        "spark": {"master": "local[2]", "conf": conf},
        "catalog": {"kind": "hive"},
        "sources": [{"name": "s", "format": "debezium", "topics": ["t"]}],
    }
    config = parse_config(settings, folder / "cdc.yaml")
    spark = open_session(config)
    feed = Feed(spark, config, "s")
    t, odd = (SourceTable("shop", n, [("id", "bigint"), ("a", "int")]) for n in ("t", "T odd"))
    for i, table in enumerate((t, odd)):
        feed.say(table.stated(), table.insert((1, 10 + i), {"id": "1", "a": "1"}))
    out = [seen(feed, feed.catch_up())]

    feed.say(ddl("ALTER TABLE t CHANGE a n INT, ADD b DECIMAL(9,2)", 20))
    now = SourceTable("shop", "t", [("id", "bigint"), ("n", "int"), ("b", "decimal(9,2)")])
    row = {"id": "1", "n": "1", "b": None}
    feed.say(now.stated(), now.update((1, 30), row, {**row, "n": "5", "b": "2.50"}))
    out.append(seen(feed, feed.catch_up()))

    feed.say(ddl("DROP TABLE t", 40))
    out.append(seen(feed, feed.catch_up()))

    spark.sql(f'CREATE TABLE {DATABASE}.theirs USING delta AS SELECT "somebody\'s" AS owner')
    theirs = SourceTable("shop", "theirs", [("id", "bigint")])
    feed.say(theirs.stated(), theirs.insert((1, 50), {"id": "1"}), ddl("DROP TABLE nothing", 51))
    told = feed.catch_up().metrics["not_registered"]
    owner = [r["owner"] for r in spark.table(f"{DATABASE}.theirs").collect()]
    out.append({"not_registered": told, "rows": owner})
    print(json.dumps(out))  # noqa: T201 - what it is for


if __name__ == "__main__":
    main(Path(sys.argv[1]))
