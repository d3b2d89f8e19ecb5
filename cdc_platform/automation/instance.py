"""Where Dagster keeps its history: $DAGSTER_HOME, else `.cdc/dagster` beside cdc.yaml, for `ui` and `run`
alike."""

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from cdc_platform.config import Config
from cdc_platform.packaged import packaged

if TYPE_CHECKING:
    from dagster import DagsterInstance


def dagster_home(config: Config) -> Path:
    """The folder, with dagster.yaml in it: the one beside cdc.yaml, else the package's.

    A folder that DAGSTER_HOME names keeps its own dagster.yaml; where it has none it gets the package's, with the
    limits that the definitions count on (one run per source at a time) and without telemetry.
    """
    if own := os.environ.get("DAGSTER_HOME"):
        home = Path(own).expanduser().absolute()
        if not (home / "dagster.yaml").exists():
            home.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(packaged("dagster.yaml"), home / "dagster.yaml")
        return home
    home = config.state_dir / "dagster"
    home.mkdir(parents=True, exist_ok=True)
    beside = config.file.parent / "dagster.yaml"
    shutil.copyfile(beside if beside.is_file() else packaged("dagster.yaml"), home / "dagster.yaml")
    return home


def open_instance(config: Config) -> "DagsterInstance":
    """The instance of that folder."""
    from dagster import DagsterInstance

    return DagsterInstance.from_config(str(dagster_home(config)))


def make_storage(config: Config) -> None:
    """Make Dagster's tables. Its programs do so themselves, but two that start at once on an empty folder get in each
    other's way (SQLite: table already exists)."""
    with open_instance(config) as instance:
        for storage in (instance.run_storage, instance.event_log_storage, instance.schedule_storage):
            assert storage is not None
