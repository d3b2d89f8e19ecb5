"""A load of a table whose history or typed changes it would end: without Spark."""

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from cdc_platform.lake import stores
from cdc_platform.loading.errors import LoadRefused
from cdc_platform.loading.run import _ends_nothing
from cdc_platform.tables import HISTORY_PATH, TYPED_CHANGES_PATH


@pytest.fixture
def config(make_config):
    tables = {"history": ["shop.*"], "typed_changes": ["shop.kept"], "routes": {"shop.old_.*": "shop.all"}}
    return make_config([{"name": "s", "format": "debezium", "topics": ["s"], "tables": tables}])


def ends(config, *names: str, keyless: str = "") -> None:
    with_key = {f"shop.{name}" for name in names if name != keyless}
    _ends_nothing(config, config.source("s"), [("shop", name) for name in names], with_key)


def test_tables_that_have_some_are_refused(config):
    lake = stores.lake(config)
    for path in (HISTORY_PATH, TYPED_CHANGES_PATH):
        made(path.of(lake, "s", ("shop", "kept")).uri())
    made(HISTORY_PATH.of(lake, "s", ("shop", "all")).uri())
    with pytest.raises(LoadRefused, match=r"history of shop\.kept, typed_changes of shop\.kept: they begin") as refused:
        ends(config, "other", "kept", "old_1")
    assert "--end-history" in refused.value.choices[0]
    assert refused.value.choices[1:] == ("`reconcile --repair` of shop.kept, which ends nothing",)
    with pytest.raises(LoadRefused) as refused:
        ends(config, "other", "kept", keyless="kept")
    assert [c.partition(" ")[0] for c in refused.value.choices] == ["--end-history"], "a repair refuses it"
    ends(config, "other", "old_1")  # there is none so far; merged tables have none


def made(path: str) -> None:
    """A Delta table."""
    write_deltalake(path, pa.table({"a": [1]}))
