"""A session that is made while this process has other things to do: Java needs two seconds to start, in which the
command line imports dagster and reads its definitions."""

import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING

from cdc_platform.config import Config
from cdc_platform.spark.session import session_of, spark_config

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_begun: "list[tuple[dict[str, str], Future[SparkSession]]]" = []


def begin(config: Config) -> None:
    """Starts to make the session that `taken` gives; nothing where there is a server. Raises SetupError when jars are
    missing."""
    from pyspark.sql import SparkSession  # noqa: F401 - here, lest two threads import it at once

    if config.spark.remote:
        return
    properties, session = spark_config(config), Future()
    _begun.append((properties, session))

    def make() -> None:
        try:
            session.set_result(session_of(properties))
        except BaseException as error:  # noqa: BLE001 - whoever takes it gets it
            session.set_exception(error)

    threading.Thread(target=make, name="early-spark", daemon=True).start()


def taken(properties: Mapping[str, str]) -> "SparkSession | None":
    """The session that was begun with these properties, once it is there; None: none was, or it was taken before.
    Raises what making it raised."""
    if not _begun or _begun[0][0] != properties:
        return None
    return _begun.pop()[1].result()
