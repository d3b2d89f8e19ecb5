"""Where Dagster keeps its history: $DAGSTER_HOME, else `.cdc/dagster` beside cdc.yaml, for `ui` and `run`
alike."""

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from cdc_platform.config import Config

if TYPE_CHECKING:
    from dagster import DagsterInstance

_ROOT = Path(__file__).resolve().parent.parent.parent


def dagster_home(config: Config) -> Path:
    """The folder, with dagster.yaml in it: the one beside cdc.yaml, else the repository's."""
    if own := os.environ.get("DAGSTER_HOME"):
        return Path(own).expanduser().absolute()
    home = config.state_dir / "dagster"
    home.mkdir(parents=True, exist_ok=True)
    for folder in (config.file.parent, _ROOT):
        if (folder / "dagster.yaml").is_file():
            shutil.copyfile(folder / "dagster.yaml", home / "dagster.yaml")
            break
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
