"""A code location for tests of Dagster's pages: the platform's own definitions over a lake made by delta-rs, with
stages that find nothing new. Read by dagster-webserver and dagster-daemon as a module."""

from typing import Any
from unittest.mock import Mock

import dagster as dg

from cdc_platform import chain
from cdc_platform.config import load_config
from cdc_platform.results import StageResult


class NoSpark(dg.ConfigurableResource):
    """Stands where the session would be."""

    @property
    def spark_session(self) -> Any:
        return Mock()


def _nothing_new(stage: str) -> chain.Stage:
    def run(spark: Any, config: Any, source: Any, **how: bool) -> StageResult:
        return StageResult(stage, source.name, 0, 0, 0.1)

    return run


@dg.definitions
def defs() -> dg.Definitions:
    from cdc_platform import definitions

    for name in chain.STAGES:
        chain.STAGES[name] = _nothing_new(name)
    definitions.spark_resource = lambda config: NoSpark()
    return definitions.build(load_config())
