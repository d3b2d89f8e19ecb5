"""Reports on single tables of the source `shop`. Each depends on the tables that it reads, not on all of them."""

from pathlib import Path

import dagster as dg

from cdc_platform.integrations import SnapshotsResource

SNAPSHOTS = dg.AssetKey(["cdc", "snapshots", "shop", "shop"])
"""Keys of the tables of the database `shop` begin with it: the component's prefix, and the source's name."""
FOLDER = Path(".reports")


def table(name: str) -> dg.AssetKey:
    """The asset of one table."""
    return dg.AssetKey([*SNAPSHOTS.path, name])


def sql_asset(file: Path, tables: list[str]) -> dg.AssetsDefinition:
    """An asset of a SQL file, as dbt's models are: run by DuckDB on the tables that it names, all of them at the newest
    cut of their source, so that it sees no transaction by half."""
    deps = [table(name) for name in tables]
    query = file.read_text(encoding="utf-8")
    about = query.splitlines()[0].removeprefix("-- ")

    @dg.asset(name=file.stem, deps=deps, group_name="reports", kinds={"sql", "duckdb"}, description=about)
    def model(snapshots: SnapshotsResource) -> dg.MaterializeResult:
        at = snapshots.at_cut("shop", kind="any")
        FOLDER.mkdir(exist_ok=True)
        with at.connect(dict(zip(tables, deps, strict=True))) as connection:
            found = connection.sql(query)
            found.write_parquet(str(FOLDER / f"{file.stem}.parquet"))
            rows = len(found)
        return dg.MaterializeResult(metadata={"dagster/row_count": rows, "cut": at.cut.number})

    return model


revenue = sql_asset(Path(__file__).with_name("revenue.sql"), ["orders", "customers"])


@dg.asset(
    deps=[table("orders")],
    group_name="reports",
    kinds={"pandas"},
    automation_condition=dg.AutomationCondition.eager(),  # runs when a catch-up has brought orders changes
)
def order_states(snapshots: SnapshotsResource) -> dg.MaterializeResult:
    """How many orders are in which state, at the newest version of the table."""
    orders = snapshots.pandas(table("orders"), columns=["status"])
    FOLDER.mkdir(exist_ok=True)
    orders["status"].value_counts().rename_axis("status").to_frame("orders").to_csv(FOLDER / "order_states.csv")
    return dg.MaterializeResult(metadata={"dagster/row_count": int(orders["status"].nunique())})
