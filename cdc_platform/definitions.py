"""The one `Definitions`: assets, checks, job, schedule, sensors and the Spark session, all from cdc.yaml.

cdc.yaml is read when Dagster loads the code location, never at import. CDC_SPARK_REMOTE (set by `cdc-platform
ui`) names a Spark Connect server to use instead of the configured one.
"""

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from cdc_platform.config import Config, load_config
from cdc_platform.spark.connect import with_remote

if TYPE_CHECKING:
    from cdc_platform.automation.naming import CdcTranslator


@dg.definitions
def defs() -> dg.Definitions:
    """What Dagster loads. A CdcError here is the code location's error, with its own text."""
    own = build(with_remote(load_config(), os.environ.get("CDC_SPARK_REMOTE")))
    # what is launched from Dagster's pages, too, in one process: the default starts one, and a JVM in it, per asset
    return dg.Definitions.merge(own, dg.Definitions(executor=dg.in_process_executor))


def build(
    config: Config,
    prefix: Sequence[str] = (),
    resource_key: str = "spark",
    translator: "CdcTranslator | None" = None,
) -> dg.Definitions:
    """The definitions of one configuration, fit to be merged with others (`Definitions.merge`).

    prefix: first segments of all asset keys, and part of the names of jobs, sensors, schedules, steps and pools; two
    configurations on one instance need two. resource_key: under which the Spark session is found. translator: how
    tables appear as assets. The tables are those that the lake knows now.
    Raises SetupError when a classic session's jars are missing.
    """
    from cdc_platform.alerts.sensors import alert_sensors
    from cdc_platform.automation import assets, checks, jobs, schedules, sensors
    from cdc_platform.automation.naming import Naming

    naming = Naming(config, prefix, resource_key, translator)
    own, checked = jobs.all_jobs(naming), checks.all_checks(naming)
    made = assets.all_assets(naming)
    return dg.Definitions(
        assets=made,
        asset_checks=checked,
        jobs=own,
        schedules=schedules.all_schedules(naming),
        sensors=[*sensors.all_sensors(naming, own[0]), *alert_sensors(naming, _check_keys([*made, *checked]))],
        resources={resource_key: spark_resource(config)},
    )


def _check_keys(definitions: Iterable[Any]) -> list[dg.AssetCheckKey]:
    """All checks that the platform declares."""
    return [key for d in definitions if isinstance(d, dg.AssetsDefinition) for key in d.check_keys]


def spark_resource(config: Config) -> Any:
    """dagster-pyspark's LazyPySparkResource: classic or Spark Connect, by configuration alone.

    Dagster shows a resource's configuration: secrets are blanked there and put back when the session is made. It also
    writes it into what is launched from the Launchpad, and launches that again as it is: so the address of a server
    that is another one with each `cdc-platform ui` isn't told.
    """
    from dagster_pyspark import LazyPySparkResource  # imports pyspark, starts nothing

    from cdc_platform.config import redact
    from cdc_platform.config.storage import kind
    from cdc_platform.spark import prestart
    from cdc_platform.spark.session import prepare, session_of, spark_config

    real = spark_config(config)
    given = os.environ.get("CDC_SPARK_REMOTE")
    shown = {} if given and real == {"spark.remote": given} else redact(real)

    class SparkSession(LazyPySparkResource):
        """A lazily opened Spark session."""

        def _init_session(self) -> None:
            if self._spark_session is None:
                asked = self.spark_config or real
                wanted = {k: real.get(k, v) if v == "***" else v for k, v in asked.items()}
                self._spark_session = prepare(
                    prestart.taken(wanted) or session_of(wanted), wanted.get("spark.remote"), kind(config.lake)
                )

    return SparkSession(spark_config=shown)
