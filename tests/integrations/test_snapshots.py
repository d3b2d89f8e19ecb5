"""The resource and the IO manager, as assets of a downstream project use them."""

from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pyarrow as pa
import pytest

from cdc_platform import tables
from cdc_platform.integrations import SnapshotsIOManager, SnapshotsResource
from tests.reading.lake import ids, items, make, write

KEY = dg.AssetKey(["snapshots", "shop", "shop", "orders"])
ITEMS = dg.AssetKey(["snapshots", "shop", "shop", "items"])


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make(tmp_path_factory.mktemp("integrations") / "lake"))


def renamed(lake: str) -> dg.AssetSpec:
    """The asset of shop.orders under a key of a company's own."""
    uri = tables.SNAPSHOT_PATH.at(lake, source="shop", db="shop", table="orders")
    return dg.AssetSpec(["bronze", "orders"], metadata={"dagster/uri": uri})


def run(*assets: Any, **resources: Any) -> dg.ExecuteInProcessResult:
    tables = [dg.AssetSpec(KEY), dg.AssetSpec(ITEMS)]
    job = dg.Definitions(assets=[*assets, *tables], resources=resources).resolve_implicit_global_asset_job_def()
    return job.execute_in_process(instance=dg.DagsterInstance.ephemeral(), raise_on_error=False)


def failure(result: dg.ExecuteInProcessResult) -> str:
    assert not result.success
    [event] = [e for e in result.all_events if e.is_step_failure]
    error = event.step_failure_data.error
    return error.cause.message if error.cause else error.message


def test_an_asset_reads_tables_through_the_resource(lake: str) -> None:
    seen: dict[str, Any] = {}

    @dg.asset(deps=[KEY, ITEMS])
    def report(snapshots: SnapshotsResource) -> None:
        seen["newest"] = ids(snapshots.pandas("shop/shop.items"))
        seen["version"] = ids(snapshots.arrow(KEY, version=0))
        at = snapshots.at_cut("shop")
        seen["cut"] = {str(k): ids(f) for k, f in at.frames([KEY, "shop.items"]).items()}

    assert run(report, snapshots=SnapshotsResource(lake=lake)).success
    assert seen == {"newest": [1, 2, 3], "version": [1], "cut": {str(KEY): [1, 2], "shop.items": [1, 2]}}


@pytest.mark.parametrize("prefix", [[], ["company", "cdc"]])
def test_a_table_is_named_by_its_key(lake: str, prefix: list[str]) -> None:
    snapshots = SnapshotsResource(lake=lake)
    assert ids(snapshots.arrow(KEY.with_prefix(prefix) if prefix else KEY)) == [1, 2]
    assert snapshots.source_of(KEY) == "shop"
    assert [str(t) for t in snapshots.tables("shop")] == ["shop/shop.items", "shop/shop.orders"]
    assert [c.number for c in snapshots.cuts("shop")] == [3, 2, 1]


def test_a_table_with_a_key_of_its_own_is_named_by_its_spec(lake: str) -> None:
    spec = renamed(lake)

    @dg.multi_asset(specs=[spec])
    def one() -> None: ...

    snapshots = SnapshotsResource(lake=lake)
    assert ids(snapshots.arrow(spec)) == ids(snapshots.arrow(one)) == [1, 2]
    assert ids(snapshots.at_cut("shop", 1).arrow(spec)) == [1]
    with pytest.raises(Exception, match="bronze/orders: isn't the key of a snapshot"):
        snapshots.arrow(spec.key)


def test_a_table_that_isnt_there_fails_the_asset_with_valid_names(lake: str) -> None:
    @dg.asset
    def report(snapshots: SnapshotsResource) -> None:
        snapshots.arrow("shop/shop.order")

    told = failure(run(report, snapshots=SnapshotsResource(lake=lake)))
    assert "shop/shop.order: no such table in this lake; valid: shop/shop.orders" in told


def downstream(annotation: Any, key: dg.AssetKey = KEY, **metadata: Any) -> Any:
    """An asset with one input, which gives the ids it sees and the type that it came as."""

    def report(orders: Any) -> Any:
        kept: Any = (type(orders).__name__, ids(orders))
        return kept

    report.__annotations__["orders"] = annotation
    ins = {"orders": dg.AssetIn(key, input_manager_key="cdc", metadata=metadata)}
    return dg.asset(ins=ins, io_manager_key="memory")(report)


@pytest.mark.parametrize(
    ("annotation", "name"),
    [(pa.Table, "Table"), (Any, "Table"), (pd.DataFrame, "DataFrame"), (pa.RecordBatchReader, "RecordBatchReader")],
)
def test_an_input_comes_as_what_it_is_annotated_with(lake: str, annotation: Any, name: str) -> None:
    result = run(downstream(annotation), cdc=SnapshotsIOManager(lake=lake), memory=dg.mem_io_manager)
    assert result.output_for_node("report") == (name, [1, 2])


@pytest.mark.parametrize("package", ["polars", "duckdb"])
def test_an_input_as_a_frame_of_an_optional_package(lake: str, package: str) -> None:
    module = pytest.importorskip(package)
    annotation = module.DataFrame if package == "polars" else module.DuckDBPyRelation
    result = run(downstream(annotation), cdc=SnapshotsIOManager(lake=lake), memory=dg.mem_io_manager)
    assert result.output_for_node("report")[1] == [1, 2]


def test_an_inputs_metadata_says_what_to_read_and_the_run_what_was_read(lake: str) -> None:
    asset = downstream(pa.Table, columns=["id"], where="id = 1")
    result = run(asset, cdc=SnapshotsIOManager(lake=lake), memory=dg.mem_io_manager)
    assert result.output_for_node("report") == ("Table", [1])
    [loaded] = [e for e in result.all_events if e.event_type_value == "LOADED_INPUT"]
    told = {k: v.value for k, v in loaded.event_specific_data.metadata.items()}
    assert (told["table"], told["version"]) == ("shop/shop/orders", 1)
    older = run(downstream(pa.Table, version=0), cdc=SnapshotsIOManager(lake=lake), memory=dg.mem_io_manager)
    assert older.output_for_node("report") == ("Table", [1])


def test_inputs_of_a_run_are_of_one_cut(tmp_path: Path) -> None:
    lake = make(tmp_path / "lake")

    @dg.asset(ins={n: dg.AssetIn(k, input_manager_key="cdc") for n, k in (("orders", KEY), ("items", ITEMS))})
    def report(orders: pa.Table, items: pa.Table) -> None:
        seen["inputs"] = (ids(orders), ids(items))

    seen: dict[str, Any] = {}
    result = run(report, cdc=SnapshotsIOManager(lake=str(lake), at="transaction"))
    assert seen["inputs"] == ([1, 2], [1, 2])
    loaded = [e.event_specific_data.metadata for e in result.all_events if e.event_type_value == "LOADED_INPUT"]
    assert {(m["cut"].value, m["cut_kind"].value) for m in loaded} == {(2, "transaction")}
    first = downstream(pa.Table, ITEMS, cut=1)
    assert run(first, cdc=SnapshotsIOManager(lake=str(lake)), memory=dg.mem_io_manager).output_for_node("report") == (
        "Table",
        [1],
    )


def test_an_upstream_in_the_same_run_and_under_another_key(tmp_path: Path) -> None:
    lake = make(tmp_path / "lake")

    @dg.multi_asset(
        specs=[
            renamed(str(lake)).replace_attributes(
                key=["bronze", "items"],
                metadata={"dagster/uri": tables.SNAPSHOT_PATH.at(str(lake), source="shop", db="shop", table="items")},
            )
        ]
    )
    def catch_up() -> Any:
        write(lake, "shop", "shop", "items", items((1, 1), (8, 8)))
        yield dg.MaterializeResult(asset_key=["bronze", "items"])

    asset = downstream(pa.Table, dg.AssetKey(["bronze", "items"]))
    result = run(catch_up, asset, cdc=SnapshotsIOManager(lake=str(lake)), memory=dg.mem_io_manager)
    assert result.output_for_node("report") == ("Table", [1, 8])


def test_a_spark_frame_comes_from_the_session_given(lake: str) -> None:
    class Session(dg.ConfigurableResource):
        @property
        def spark_session(self) -> Any:
            return FakeSpark()

    from pyspark.sql import DataFrame

    told = failure(run(downstream(DataFrame), cdc=SnapshotsIOManager(lake=lake), memory=dg.mem_io_manager))
    assert "SnapshotsIOManager(spark=<a Spark resource>)" in told
    asked = failure(
        run(downstream(DataFrame), cdc=SnapshotsIOManager(lake=lake, spark=Session()), memory=dg.mem_io_manager)
    )
    assert "asked for delta" in asked


class FakeSpark:
    """Says that it was asked: that Spark reads tables is tested with Spark."""

    @property
    def read(self) -> Any:
        raise RuntimeError("asked for delta")


def test_a_type_that_no_frame_has_is_told(lake: str) -> None:
    told = failure(run(downstream(dict), cdc=SnapshotsIOManager(lake=lake), memory=dg.mem_io_manager))
    assert "builtins.dict: no frame of this type" in told
    assert "pandas.DataFrame" in told


def test_nothing_is_written(lake: str) -> None:
    @dg.asset(io_manager_key="cdc")
    def mine() -> int:
        return 1

    told = failure(run(mine, cdc=SnapshotsIOManager(lake=lake)))
    assert "mine: this IO manager reads snapshots and writes nothing" in told
