"""`CdcPlatformComponent`: the platform in a `dg` project, from a `defs.yaml`.

The table list isn't state of the component: it is in the lake, from where definitions read it in milliseconds when they
load, and the sensor `tables_sensor` has Dagster load them when it changes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import dagster as dg
from dagster.components.component_scaffolding import scaffold_component
from dagster.components.utils.translation import TranslationFn, TranslationFnResolver
from pydantic import BaseModel, Field

from cdc_platform.automation.naming import CdcAsset, CdcTranslator
from cdc_platform.config import load_config
from cdc_platform.definitions import build
from cdc_platform.integrations.io_manager import SnapshotsIOManager
from cdc_platform.integrations.resource import SnapshotsResource

_TEMPLATE = """\
# What to catch up with, and where to. All keys: docs/reference/configuration.md of cdc-platform.
lake: ./.cdc/lake # a folder or a URI
spark: {master: "local[*]"}
kafka: {bootstrap.servers: "localhost:9092"} # secrets only as ${ENV_VAR}
sources:
  - name: shop
    format: debezium # `cdc-platform inspect TOPIC` says which format a topic has
    topics: [shopdb.shop.orders]
"""


class CdcPlatformParams(BaseModel):
    """What `dg scaffold defs` may be told."""

    config: str | None = Field(
        default=None, description="cdc.yaml, relative to the project's root; one is written where there is none"
    )


class CdcPlatformScaffolder(dg.Scaffolder[CdcPlatformParams]):
    """Writes `defs.yaml`, and a `cdc.yaml` to begin with where there is none."""

    @classmethod
    def get_scaffold_params(cls) -> type[CdcPlatformParams]:
        """The options of the command."""
        return CdcPlatformParams

    def scaffold(self, request: dg.ScaffoldRequest[CdcPlatformParams]) -> None:
        """Never overwrites a cdc.yaml."""
        name = (request.params.config if request.params else None) or "cdc.yaml"
        file = (request.project_root or request.target_path) / name
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(_TEMPLATE, encoding="utf-8")
        where = f"{{{{ context.project_root }}}}/{name}" if request.project_root else name
        scaffold_component(request, {"config": where, "snapshots_key": "snapshots"})


@dg.scaffold_with(CdcPlatformScaffolder)
@dataclass
class CdcPlatformComponent(dg.Component, dg.Resolvable):
    """Follows databases' change topics into Delta tables: assets, checks, jobs, schedules and sensors of one cdc.yaml.

    `translation` changes how tables appear as assets, with `asset` in its templates: `asset.stage`, `asset.source`,
    `asset.db`, `asset.table`, `asset.topic`. For more than templates can say override `get_asset_spec`.
    """

    config: Annotated[
        str,
        dg.Resolver.default(
            description="cdc.yaml, relative to the component's folder, or absolute",
            examples=["{{ context.project_root }}/cdc.yaml"],
        ),
    ]
    prefix: Annotated[
        Sequence[str],
        dg.Resolver.default(
            description="first segments of all asset keys, and part of the names of jobs, sensors and schedules; two "
            "configurations need two",
            examples=[["cdc"]],
        ),
    ] = field(default_factory=list)
    resource_key: Annotated[
        str, dg.Resolver.default(description="under which the Spark session is found", examples=["cdc_spark"])
    ] = "spark"
    snapshots_key: Annotated[
        str | None,
        dg.Resolver.default(
            description="under which SnapshotsResource is given to the project's assets, none by default; its IO "
            "manager is <key>_io_manager",
            examples=["snapshots"],
        ),
    ] = None
    translation: (
        Annotated[
            TranslationFn[CdcAsset],
            TranslationFnResolver(template_vars_for_translation_fn=lambda asset: {"asset": asset}),
        ]
        | None
    ) = None

    def get_asset_spec(self, data: CdcAsset) -> dg.AssetSpec:
        """The spec of one asset. To be overridden where `translation` doesn't suffice."""
        return self.translation(data.spec, data) if self.translation else data.spec

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """The definitions of cdc.yaml. Raises ConfigError."""
        config = load_config(Path(context.path) / self.config)
        defs = build(config, self.prefix, self.resource_key, _ByComponent(self))
        if not self.snapshots_key:
            return defs
        readers = {
            self.snapshots_key: SnapshotsResource(lake=config.lake),
            f"{self.snapshots_key}_io_manager": SnapshotsIOManager(lake=config.lake),
        }
        return dg.Definitions.merge(defs, dg.Definitions(resources=readers))


class _ByComponent(CdcTranslator):
    """Asks the component, and so its subclasses."""

    def __init__(self, component: CdcPlatformComponent):
        self._component = component

    def get_asset_spec(self, data: CdcAsset) -> dg.AssetSpec:
        """As the component says."""
        return self._component.get_asset_spec(data)
