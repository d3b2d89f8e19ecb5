"""`SnapshotsResource`: the lake's snapshots for any Dagster asset, without Spark."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field

from cdc_platform.errors import NotReadable
from cdc_platform.reading import Cut, Frames, Snapshots, SnapshotsAtCut, TableName
from cdc_platform.reading.catalog import CutKind, Snapshot

ROOT = "snapshots"
"""The part of an asset key, and the folder of the lake, under which the tables are."""
URI = "dagster/uri"


class SnapshotsResource(Frames, dg.ConfigurableResource):
    """The snapshots of a lake: `arrow`, `pandas`, `polars`, `duckdb`, `connect`, `batches`, `frames` of a table at its
    newest or a given version, `spark` where a session is given, and `at_cut` for all tables of a source at one cut.

    A table is "source/db.table", the key of its asset, or the asset or its spec (needed where keys were translated).
    """

    lake: str = Field(description="path or URI of the lake, as in cdc.yaml")
    only_live: bool = Field(
        default=True, description="refuse tables that aren't kept up to date any more (stopped, dropped, left out)"
    )

    def tables(self, source: str | None = None) -> list[TableName]:
        """The live tables, of one source or of all."""
        return self._snapshots.tables(source)

    def cuts(self, source: str, limit: int = 20) -> list[Cut]:
        """The source's cuts, the newest first."""
        return self._snapshots.cuts(source, limit)

    def complete_up_to(self, table: Any, *, proven: bool = False) -> datetime | None:
        """All that the source had committed before this time, by its own clock, is in the table: proven, or assumed of
        partitions to which nothing comes. None: it can't be told; proven: or it is assumed now. Raises NotReadable."""
        return self._snapshots.complete_up_to(table_text(table, self.lake), proven=proven)

    def at_cut(self, source: str, cut: int | None = None, kind: CutKind = "transaction") -> SnapshotsAtCut:
        """All tables of a source at one cut, see `Snapshots.at_cut`. Raises NotReadable."""
        return _AtCut(self.lake, self._snapshots.at_cut(source, cut, kind).cut)

    def source_of(self, table: Any) -> str:
        """The source of a table. Raises NotReadable."""
        return table_text(table, self.lake).split("/", 1)[0]

    @property
    def _snapshots(self) -> Snapshots:
        return Snapshots(self.lake, only_live=self.only_live)

    def _find(self, table: Any, version: int | None) -> Snapshot:
        return self._snapshots._find(table_text(table, self.lake), version)


class _AtCut(SnapshotsAtCut):
    """The same for tables given as assets."""

    def __init__(self, lake: str, cut: Cut):
        super().__init__(cut)
        self._lake = lake

    def _find(self, table: Any, version: int | None) -> Snapshot:
        return super()._find(table_text(table, self._lake), version)


def table_text(table: Any, lake: str) -> str:
    """ "source/db.table" or "source/db/table" of a table that is given as text or as an asset. Raises NotReadable."""
    if isinstance(table, dg.AssetsDefinition):
        table = _only_spec(table)
    if isinstance(table, dg.AssetSpec):
        return asset_table(table.key, table.metadata, lake)
    return asset_table(table, {}, lake) if isinstance(table, dg.AssetKey) else str(table)


def asset_table(key: dg.AssetKey, metadata: Mapping[str, Any], lake: str) -> str:
    """ "source/db/table" of an asset: by its `dagster/uri`, else by the end of its key. Raises NotReadable."""
    uri = metadata.get(URI)
    uri = str(getattr(uri, "value", uri) or "")
    if uri.startswith(root := f"{absolute(lake)}/{ROOT}/"):
        return uri.removeprefix(root)
    if ROOT in key.path and len(parts := key.path[key.path.index(ROOT) + 1 :]) > 1:
        return "/".join(parts)
    raise NotReadable(
        key.to_user_string(),
        "isn't the key of a snapshot",
        [f"…/{ROOT}/<source>/<db>/<table>", "the asset or its spec, where a translator changed the key"],
    )


def absolute(lake: str) -> str:
    """The lake as assets name it: a path without a scheme is absolute there."""
    return lake.rstrip("/") if "://" in lake else str(Path(lake).expanduser().resolve())


def _only_spec(assets: dg.AssetsDefinition) -> dg.AssetSpec:
    specs = list(assets.specs)
    if len(specs) != 1:
        raise NotReadable(
            "assets", "hold several tables; give one's key or spec", [s.key.to_user_string() for s in specs]
        )
    return specs[0]
