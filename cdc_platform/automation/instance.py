"""Where Dagster keeps its history: $DAGSTER_HOME, else `.cdc/dagster` beside cdc.yaml, for `ui` and `run`
alike."""

import os
import shutil
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cdc_platform.config import Config
from cdc_platform.setup.packaged import packaged
from cdc_platform.setup.process_start import has_ended, start_of

if TYPE_CHECKING:
    from dagster import DagsterInstance, DagsterRun

PROCESS_TAG = "cdc/process"
"""On runs of the command line: host, process id and process_start.start_of of the process that executes them."""
GONE = "The process that executed this run has ended."


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


def end_orphans(instance: "DagsterInstance") -> list[str]:
    """Mark runs as failed (or canceled, where that was asked for) whose code server or process is gone; their ids.

    Call it before a deployment's one code server starts. It executes all runs that the daemon launches, as processes
    of its own, so none of them can be alive. Dagster would take them for running, and hold up their sources, until
    run_monitoring.max_runtime_seconds. Runs of the command line are ended where their process is gone.
    """
    from dagster import DagsterRunStatus, RunsFilter
    from dagster._core.launcher import DefaultRunLauncher
    from dagster._core.storage.tags import GRPC_INFO_TAG

    alive = [DagsterRunStatus.STARTING, DagsterRunStatus.STARTED, DagsterRunStatus.CANCELING]
    launched = isinstance(instance.run_launcher, DefaultRunLauncher)
    orphans = [
        run
        for run in instance.get_runs(RunsFilter(statuses=alive))
        if is_gone(run) or (launched and GRPC_INFO_TAG in run.tags)
    ]
    for run in orphans:
        if run.status == DagsterRunStatus.CANCELING:
            instance.report_run_canceled(run)
        else:
            instance.report_run_failed(
                run, GONE if is_gone(run) else "The code server that executed this run has ended."
            )
    return [run.run_id for run in orphans]


def process_tag() -> str:
    """Value of PROCESS_TAG for a run that this process executes itself."""
    return f"{socket.gethostname()}/{os.getpid()}/{start_of(os.getpid()) or ''}"


def is_gone(run: "DagsterRun") -> bool:
    """Whether a process of this machine executed the run and has ended without a word, as when it is killed."""
    host, process, start = (*run.tags.get(PROCESS_TAG, "").split("/"), "", "")[:3]
    return host == socket.gethostname() and process.isdecimal() and has_ended(int(process), start)


def end_own_orphans(config: Config) -> list[str]:
    """The same for the history beside cdc.yaml, before `ui` starts the only code server that launches runs there.

    DAGSTER_HOME may name an instance that others' code servers use, too: there nothing is ended, and run_monitoring
    decides.
    """
    if os.environ.get("DAGSTER_HOME"):
        return []
    with open_instance(config) as instance:
        return end_orphans(instance)


def main() -> int:
    """`python -m cdc_platform.automation.instance`: end the orphans of the instance in DAGSTER_HOME."""
    from dagster import DagsterInstance

    with DagsterInstance.get() as instance:
        for run_id in end_orphans(instance):
            print(f"run {run_id} ended with the code server that executed it", file=sys.stderr)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
