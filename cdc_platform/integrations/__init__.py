"""For Dagster projects beside the platform: its tables as a resource and as inputs of assets."""

from cdc_platform.integrations.io_manager import SnapshotsIOManager
from cdc_platform.integrations.resource import SnapshotsResource

__all__ = ["SnapshotsIOManager", "SnapshotsResource"]
