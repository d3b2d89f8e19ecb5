"""What a plan of a cutover says by the last comparison, which may be old. No Spark."""

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cdc_platform.cli.app import run as command
from cdc_platform.config import load_config
from cdc_platform.lake import delta_table
from cdc_platform.reading import described
from cdc_platform.shadow import handover, point, ready, run
from cdc_platform.shadow.errors import ShadowRefused
from cdc_platform.tables import SHADOW_COMPARISONS
from tests import calls
from tests.automation.conftest import snapshot
from tests.rows import add

AT = datetime(2026, 11, 28, 12, tzinfo=UTC)
DIFFERS = "1 row of d.orders differs"


@pytest.fixture
def config(tmp_path):
    sources = [
        {"name": n, "format": f, "topics": [n]} for n, f in (("shop", "canal_json"), ("shop-dts", "tencent_dts"))
    ]
    told = {"lake": str(tmp_path / "lake"), "kafka": {"bootstrap.servers": "127.0.0.1:1"}, "sources": sources}
    (tmp_path / "cdc.yaml").write_text(json.dumps({**told, "shadow": {"of": "shop", "by": "shop-dts"}}))
    found = load_config(tmp_path / "cdc.yaml")
    for table in ("orders", "items"):
        for source in ("shop", "shop-dts"):
            snapshot(found, source, f"d.{table}", 2)
        compared(found, table, differing=int(table == "orders"))
    return found


def compared(config, table, differing=0, **more):
    row = {"source": "shop", "by": "shop-dts", "number": 0, "db": "d", "table": table, "table_by": f"d.{table}"}
    counts = {"only_of": 0, "only_by": 0, "differing": differing, "unsettled": 0}
    state = "different" if differing else "equal"
    more = {"version_of": 0, "version_by": 0, "at": AT, **more}
    add(config.lake, SHADOW_COMPARISONS, {**row, **counts, "state": state, **more})


def test_of_tables_that_changed_since_a_comparison_refuses_nothing(config):
    with pytest.raises(ShadowRefused, match=DIFFERS):
        ready.last(config, config.shadow[0])
    snapshot(config, "shop", "d.orders", 3)  # as a repair does
    last = ready.last(config, config.shadow[0])
    assert last.data() == {"compared_at": AT, "changed_since": ["d.orders"], "found_then": [DIFFERS]}
    assert list(last.rows) == [("d", "items")]
    snapshot(config, "shop-dts", "d.items", 3)
    last = ready.last(config, config.shadow[0])
    assert (last.changed, last.rows) == (["d.items", "d.orders"], {})


def test_a_plan_looks_at_several_snapshots_at_once(config, monkeypatch):
    for source in ("shop", "shop-dts"):
        snapshot(config, source, "d.orders", 3)
    looked = calls.meet(monkeypatch, delta_table, "version_or_none", 4)
    last = ready.last(config, config.shadow[0])
    assert (last.changed, list(last.rows), len(looked)) == (["d.orders"], [("d", "items")], 4)


def test_a_comparison_reads_the_column_lists_of_either_feed_once(config, monkeypatch):
    frame = SimpleNamespace(dtypes=[("id", "bigint")])
    monkeypatch.setattr(run._Work, "_frame", lambda *_: frame)  # no Spark: the columns alone tell that there is no key
    read = calls.count(monkeypatch, described, "keys")
    at = point.before(config, config.shadow[0], AT)
    found = run.compare(cast("Any", None), config, config.shadow[0], anew=True, at=at)
    assert [r["reason"] for r in found["rows"]] == ["the key isn't known in shop"] * 2
    assert [source for _, source in read] == ["shop", "shop-dts"]


def test_the_plan_says_when_it_was_compared_and_what_yes_does(config, monkeypatch, capsys):
    monkeypatch.setattr(ready, "check_lake", lambda *_: None)
    monkeypatch.setattr(handover.Handover, "_pairs", lambda _: [])
    at = ["--config", str(config.file)]
    assert command(["shadow", "cutover", "shop", *at]) == 1
    why = f"{DIFFERS} by the comparison of 2026-11-28 12:00:00Z, and its snapshots haven't changed since"
    assert why in " ".join(capsys.readouterr().err.split())
    snapshot(config, "shop", "d.orders", 3)
    assert command(["shadow", "cutover", "shop", *at]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "compared at 2026-11-28 12:00:00Z changed since then d.orders" in said
    assert f"found then, of these {DIFFERS}" in said
    assert "to do it --yes: brings both up to date and compares all tables anew before" in said


def test_feeds_that_were_never_compared(config, monkeypatch):
    monkeypatch.setattr(ready.kept, "last", lambda *_: {})
    with pytest.raises(ShadowRefused, match="weren't compared yet"):
        ready.last(config, config.shadow[0])
