"""How a cut asks an object store for the versions of its tables. No Spark."""

from typing import Any, cast

import pytest

from cdc_platform import tables
from cdc_platform.lake import delta_table, folders, new_tables, stores
from cdc_platform.snapshots.cuts import publish
from tests import calls

pytestmark = pytest.mark.s3
READ = ("CHANGELOG", "CONTROL_EVENTS", "SCHEMA_HISTORY", "SCHEMA_CHANGES", "QUARANTINE", "OFFSET_LEDGER")


def test_sixteen_tables_are_looked_at_together(make_config, on_s3, monkeypatch):
    config = on_s3(make_config([{"name": "s", "format": "canal_json", "topics": ["t"]}]))
    lake, [source] = stores.lake(config), config.sources
    for table in (getattr(tables, name) for name in READ):
        new_tables.create(table.at(lake), table)
    names = [("d", f"t{i:02}") for i in range(16)]
    for name in names:
        new_tables.create(folders.snapshot(lake, "s", name), tables.CUTS)
    states: Any = {name: {"state": "live", "reason": None, "entries": 1, "batch": 0} for name in names}
    looked = calls.meet(monkeypatch, delta_table, "version_or_none", 16, lambda path, **_: "/snapshots/" in path.uri())
    found = publish.publish(cast("Any", None), config, source, states)
    assert (found["cut"], len(looked)) == (1, 16)
    [row] = delta_table.ask("SELECT snapshots FROM {t}", t=tables.CUTS.at(lake))
    assert [(s["table"], s["version"]) for s in row["snapshots"]] == [(name[1], 0) for name in names]
