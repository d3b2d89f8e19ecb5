"""Which runs are a source's, where they have no tag."""

import dagster as dg
from dagster._core.test_utils import create_run_for_test

from cdc_platform.automation import runs
from cdc_platform.automation.naming import CdcAsset, CdcTranslator, Naming
from cdc_platform.tables import TABLE_STATE
from tests.automation.conftest import make_config
from tests.rows import add


class Mine(CdcTranslator):
    """Keys of a team's own."""

    def get_asset_spec(self, data: CdcAsset) -> dg.AssetSpec:
        parts = [part for part in (data.schema, data.table) if part]
        return data.spec.replace_attributes(key=dg.AssetKey(["raw", *parts])) if data.stage == "table" else data.spec


def test_a_run_by_hand_of_a_table_in_a_schema_counts_also_where_a_translator_names_it(tmp_path) -> None:
    config = make_config(tmp_path)
    source = config.sources[0]
    row = {"source": source.name, "db": "shop", "schema": "sales", "table": "orders", "batch": 0, "state": "live"}
    add(config.lake, TABLE_STATE, {**row, "invalid_dates": 0, "rebuild": 0})
    naming = Naming(config, translator=Mine())
    with dg.DagsterInstance.ephemeral() as instance:
        for key in (["raw", "sales", "orders"], ["raw", "orders"]):
            create_run_for_test(instance, job_name="__ASSET_JOB", asset_selection=frozenset({dg.AssetKey(key)}))
        [found] = runs.of_source(instance, naming, source, limit=5)
    assert found.run.asset_selection == {dg.AssetKey(["raw", "sales", "orders"])}
