"""What Dagster loads: everything below `defs/`."""

from pathlib import Path

import dagster as dg


@dg.definitions
def defs() -> dg.Definitions:
    """The platform (`defs/cdc/defs.yaml`) and the reports (`defs/reports`)."""
    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
