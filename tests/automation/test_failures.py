"""Why a step of a run failed, in one line."""

import dagster as dg
import pytest

from cdc_platform.automation.failures import reason
from cdc_platform.errors import ConfigError


def own() -> None:
    raise dg.Failure("source shop: no room", allow_retries=False)


def caused() -> None:
    try:
        raise ConfigError("lake", "no such folder\nat all")
    except ConfigError as error:
        raise RuntimeError("outside") from error


def blocked() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(asset_key="orders", check_name="certified", passed=False)


@pytest.mark.parametrize(
    ("work", "told"),
    [
        (own, "source shop: no room"),
        (caused, "cdc_platform.errors.ConfigError: lake: no such folder"),
        (blocked, "1 blocking asset check failed with ERROR severity: orders: certified"),
    ],
    ids=["its own words", "the innermost cause", "a check that blocks"],
)
def test_why_it_failed(work, told, instance):
    @dg.asset(check_specs=[dg.AssetCheckSpec("certified", asset="orders", blocking=True)] if work is blocked else [])
    def orders():
        if work is blocked:
            yield dg.MaterializeResult()
            yield work()
        else:
            work()
            yield dg.MaterializeResult()

    result = dg.materialize([orders], instance=instance, raise_on_error=False)
    [failure] = result.get_step_failure_events()
    assert told in reason(failure.step_failure_data)
