"""`SnapshotsIOManager`: a snapshot as the input of an asset, in the frame that the parameter is annotated with."""

from typing import Any, Literal

import dagster as dg
from pydantic import Field, PrivateAttr

from cdc_platform.errors import NotReadable, SetupError
from cdc_platform.integrations.resource import asset_table
from cdc_platform.reading import Frames, Snapshots, SnapshotsAtCut

READERS = {
    "pyarrow.Table": "arrow",
    "pyarrow.RecordBatchReader": "batches",
    "pandas.DataFrame": "pandas",
    "polars.DataFrame": "polars",
    "duckdb.DuckDBPyRelation": "duckdb",
    "pyspark.DataFrame": "spark",
}
"""Package and class of a parameter's annotation → method of Frames. No annotation: Arrow."""
_OPTIONS = ("columns", "where", "version", "cut", "bookkeeping")
"""What the metadata of an AssetIn may say."""


class SnapshotsIOManager(dg.ConfigurableIOManager):
    """Reads inputs whose upstream asset is a snapshot; writes nothing. To be an asset's `input_manager_key`.

    The annotation of the parameter says which frame: pyarrow.Table (also without annotation),
    pyarrow.RecordBatchReader, pandas.DataFrame, polars.DataFrame, duckdb.DuckDBPyRelation, pyspark.sql.DataFrame. The
    input's metadata may hold `columns`, `where`, `bookkeeping`, `version` or `cut` (a number).
    """

    lake: str = Field(description="path or URI of the lake, as in cdc.yaml")
    at: Literal["newest", "transaction", "any"] = Field(
        default="newest",
        description="newest: each table's newest version; transaction, any: all inputs of a run that are tables of one "
        "source at its newest cut of that kind (in one process: another process of a run may find a newer cut)",
    )
    only_live: bool = Field(
        default=True, description="refuse tables that aren't kept up to date any more (stopped, dropped, left out)"
    )
    spark: dg.ResourceDependency[Any | None] = None  # pyright: ignore[reportAssignmentType]
    _cuts: dict[tuple[str, str], SnapshotsAtCut] = PrivateAttr(default_factory=dict)

    def load_input(self, context: dg.InputContext) -> Any:
        """The table of the upstream asset. Its version, and the cut's number, become metadata of the input. Raises
        NotReadable; SetupError where a Spark frame is wanted and there is no session."""
        asked = dict(context.definition_metadata or {})
        upstream = context.upstream_output.definition_metadata if context.upstream_output else {}
        table = asset_table(context.asset_key, upstream or {}, self.lake)
        options = {k: v for k, v in asked.items() if k in _OPTIONS and k not in ("cut", "version")}
        frames, told = self._frames(context, table.split("/", 1)[0], asked)
        found = frames.find(table, asked.get("version"))
        context.add_input_metadata({"table": table, "version": found.version, **told})
        pinned = {} if isinstance(frames, SnapshotsAtCut) else {"version": found.version}
        reader = _reader(context.dagster_type.typing_type)
        if reader == "spark":
            options["session"] = self._session(table)
        return getattr(frames, reader)(table, **options, **pinned)

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:  # noqa: ARG002
        """Refused: the platform alone writes snapshots. Raises NotReadable."""
        raise NotReadable(
            context.asset_key.to_user_string() if context.has_asset_key else str(context.name),
            "this IO manager reads snapshots and writes nothing: give the asset an io_manager_key of its own, and name "
            "this one as input_manager_key of its inputs",
        )

    def _frames(self, context: dg.InputContext, source: str, asked: dict[str, Any]) -> tuple[Frames, dict[str, Any]]:
        """What to read from, and what to say of it."""
        snapshots = Snapshots(self.lake, only_live=self.only_live)
        if "cut" in asked:
            at = snapshots.at_cut(source, int(asked["cut"]))
        elif self.at == "newest" or "version" in asked:
            return snapshots, {}
        else:
            run = context.step_context.run_id
            at = self._cuts.setdefault((run, source), snapshots.at_cut(source, kind=self.at))
        return at, {"cut": at.cut.number, "cut_kind": at.cut.kind}

    def _session(self, table: str) -> Any:
        if self.spark is None:
            raise SetupError(f"{table}: a Spark frame needs a session: SnapshotsIOManager(spark=<a Spark resource>)")
        return self.spark.spark_session


def _reader(wanted: Any) -> str:
    if wanted is Any or not isinstance(wanted, type):
        return "arrow"
    name = f"{wanted.__module__.split('.')[0]}.{wanted.__name__}"
    if name not in READERS:
        raise NotReadable(name, "no frame of this type can be made of a snapshot", READERS)
    return READERS[name]
