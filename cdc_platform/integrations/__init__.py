"""For Dagster projects: the platform as a component, its tables as a resource and as inputs of assets.

As a library: `cdc_platform.definitions.build`.
"""

from cdc_platform.automation.naming import CdcAsset, CdcTranslator
from cdc_platform.integrations.component import CdcPlatformComponent
from cdc_platform.integrations.io_manager import SnapshotsIOManager
from cdc_platform.integrations.resource import SnapshotsResource

__all__ = ["CdcAsset", "CdcPlatformComponent", "CdcTranslator", "SnapshotsIOManager", "SnapshotsResource"]
