"""The Dagster job `shadow` with Spark, on two real feeds of a real MariaDB."""

from typing import Any

import dagster as dg
import pytest

from cdc_platform.definitions import build
from tests.loading.test_job import TheSession
from tests.shadow.test_run import ITEMS, without
from tests.shadow.world import BY, OF, Pair

pytestmark = [
    *(pytest.mark.thorough, pytest.mark.spark, pytest.mark.broker, pytest.mark.oracle),
    pytest.mark.timeout(600),
]


def checked(w: Pair) -> Any:
    """What the check says."""
    job = build(w.config).resolve_job_def("shadow")
    with dg.DagsterInstance.ephemeral() as instance:
        result = job.execute_in_process(instance=instance)
    [check] = result.get_asset_check_evaluations()
    return check


def test_what_one_feed_lost_fails_the_check_until_it_is_there(feeds: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("cdc_platform.definitions.spark_resource", lambda config: TheSession())
    w = feeds("tencent_dts", "canal")
    w.create(t := "by_job", ITEMS)
    w.create(other := "by_job_other", ITEMS)
    w.run(*(f"INSERT INTO {t} VALUES ({i}, 'n{i}', {i}.50, NULL)" for i in range(5)))
    w.send(OF)
    w.send(BY, without(t, 2))
    w.pass_on(other)
    check = checked(w)
    assert (check.passed, check.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert [check.metadata[k].value for k in ("tables", "different", "only_of", "only_by")] == [2, 1, 1, 0]
    states = {r.data["table"]: r.data["state"] for r in check.metadata["states"].records}
    assert states == {f"oracle.{t}": "different", f"oracle.{other}": "equal"}
    assert w.open()[0][:3] == (t, "2", "only_of")

    w.run(f"DELETE FROM {t} WHERE id = 2")
    w.pass_on(other)
    check = checked(w)
    assert (check.passed, w.open()) == (True, [])
    assert check.metadata["only_of"].value == 0
