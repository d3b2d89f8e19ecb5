"""The one `Definitions`: assets, checks, job, schedule, sensors and the Spark session, all from cdc.yaml.

cdc.yaml is read when Dagster loads the code location, never at import. CDC_SPARK_REMOTE (set by `cdc-platform
ui`) names a Spark Connect server to use instead of the configured one.
"""

import os
from typing import Any

import dagster as dg

from cdc_platform.config import Config, load_config
from cdc_platform.resources.connect import with_remote


@dg.definitions
def defs() -> dg.Definitions:
    """What Dagster loads. A CdcError here is the code location's error, with its own text."""
    return build(with_remote(load_config(), os.environ.get("CDC_SPARK_REMOTE")))


def build(config: Config) -> dg.Definitions:
    """The definitions of one configuration. Raises SetupError when a classic session's jars are missing."""
    from cdc_platform.automation import assets, checks, jobs, schedules, sensors

    sensed = jobs.sensed_jobs(config)
    return dg.Definitions(
        assets=assets.all_assets(config),
        asset_checks=checks.all_checks(config),
        jobs=[*sensed, *jobs.other_jobs(config)],
        schedules=schedules.all_schedules(config),
        sensors=sensors.all_sensors(config, sensed),
        resources={"spark": spark_resource(config)},
        executor=dg.in_process_executor,
    )


def spark_resource(config: Config) -> Any:
    """dagster-pyspark's LazyPySparkResource: classic or Spark Connect, by configuration alone.

    Dagster shows a resource's configuration: secrets are blanked there and put back when the session is made.
    """
    from dagster_pyspark import LazyPySparkResource  # imports pyspark, starts nothing

    from cdc_platform.config import redact
    from cdc_platform.resources import early
    from cdc_platform.resources.spark import prepare, session_of, spark_config

    real = spark_config(config)

    class SparkSession(LazyPySparkResource):
        """A lazily opened Spark session."""

        def _init_session(self) -> None:
            if self._spark_session is None:
                wanted = {k: real.get(k, v) if v == "***" else v for k, v in self.spark_config.items()}
                self._spark_session = prepare(early.taken(wanted) or session_of(wanted), real.get("spark.remote"))

    return SparkSession(spark_config=redact(real))
