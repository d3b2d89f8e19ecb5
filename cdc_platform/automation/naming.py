"""What the platform's tables, jobs and resources are called in a Dagster code location.

Every asset key, group, owner and tag comes from here, so that `definitions.build(prefix=…, translator=…)` can place
the platform in anybody's project. Stages are the steps of the chain; each has one asset per source. Source tables
have one asset each below `snapshots/<source>`. Four more assets show what all sources share.
"""

import hashlib
import logging
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import dagster as dg

from cdc_platform import tables
from cdc_platform.automation import table_status
from cdc_platform.automation.looks import DELTA, KAFKA, OF_ALL, OF_SOURCE, SHARED, STAGES, TABLE
from cdc_platform.automation.markup import literal
from cdc_platform.automation.metadata import declared_metadata
from cdc_platform.config import Config, Source
from cdc_platform.errors import LakeChanged, StorageError
from cdc_platform.formats import FORMATS
from cdc_platform.lake import folders, stores
from cdc_platform.lake.beside import KINDS
from cdc_platform.tables import Name

log = logging.getLogger(__name__)

OWNERS = ["team:cdc"]
SOURCE_TAG = "cdc/source"
CATCH_UP = "catch_up"
"""Base name of the job that runs the chain."""
_LONGEST_TAG = 63  # Dagster's own limit for a tag's value
_BY_FOLDER = ("snapshots", "complete")
"""Stages whose assets are named as the folder of the source's snapshots: what readers know."""


@dataclass(frozen=True, slots=True)
class CdcAsset:
    """What a translator is asked to describe.

    stage: one of STAGES, of SHARED, "kafka", "maintenance", "reconcile", "shadow", "complete", "table" (a snapshot),
    "history" or "typed_changes". source: None for what sources share. db, schema, table: of the last three stages, as
    the source spells them (schema: where it has one). topic: of stage "kafka" only. spec: as the platform would
    describe it.
    """

    stage: str
    spec: dg.AssetSpec
    source: Source | None = None
    db: str | None = None
    table: str | None = None
    topic: str | None = None
    schema: str | None = None


class CdcTranslator:
    """How the platform's tables appear as assets. Override `get_asset_spec` to change keys, groups, owners, tags,
    descriptions or metadata; keys must stay distinct. Dependencies are set by the platform, by the keys given here."""

    def get_asset_spec(self, data: CdcAsset) -> dg.AssetSpec:
        """The spec of one asset; the default is the platform's own."""
        return data.spec


class Naming:
    """Names of one configuration in one code location.

    prefix: first segments of every asset key, and part of every job, sensor, schedule, op and pool name.
    resource_key: under which the Spark session is found. folders: source → the folder of its snapshots, as it is while
    these definitions are in use.
    """

    def __init__(
        self,
        config: Config,
        prefix: Iterable[str] = (),
        resource_key: str = "spark",
        translator: CdcTranslator | None = None,
    ):
        self.config = config
        self.prefix = tuple(prefix)
        self.resource_key = resource_key
        self._translator = translator or CdcTranslator()
        self._specs: dict[tuple[Any, ...], dg.AssetSpec] = {}
        self.folders = _folders(config)

    @cached_property
    def known(self) -> list[tuple[Source, Name]]:
        """Source and name of every table that has an asset, as the lake was when these definitions were made."""
        return table_status.known_or_none(self.config)

    @property
    def translates(self) -> bool:
        """Whether a translator may give assets other keys than the platform's own."""
        return type(self._translator) is not CdcTranslator

    def name(self, base: str) -> str:
        """A job, sensor, schedule or op name."""
        return "_".join((*self.prefix, base)).replace("-", "_")

    def pool(self, source: Source) -> str:
        """The pool that lets one run at a time write a source's tables."""
        return self.name(f"source_{source.slug}")

    def tag(self, source: Source) -> str:
        """Value of SOURCE_TAG on the runs of a source."""
        text = ".".join((*self.prefix, source.name))
        digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        return text if len(text) <= _LONGEST_TAG else f"{text[: _LONGEST_TAG - 17]}-{digest}"

    def spec(self, stage: str, source: Source | None = None) -> dg.AssetSpec:
        """The asset of a stage of one source, or with no source one of SHARED. No dependencies."""
        return self._translated(stage, source)

    def key(self, stage: str, source: Source | None = None) -> dg.AssetKey:
        """Its key."""
        return self.spec(stage, source).key

    def table(self, source: Source, *name: str) -> dg.AssetSpec:
        """The asset of one snapshot; it depends on the stage `snapshots` of its source."""
        return self._of_table(TABLE, source, name)

    def beside(self, source: Source, *name: str) -> dict[str, dg.AssetSpec]:
        """The assets of what is kept of a table beside its snapshot, by stage; they depend on that."""
        asked = [kind for kind, look in KINDS.items() if look.asked(source.tables, *name)]
        deps = [self.table(source, *name).key]
        return {kind: with_deps(self._of_table(kind, source, name), deps) for kind in asked}

    def _of_table(self, kind: str, source: Source, name: tuple[str, ...]) -> dg.AssetSpec:
        parts = tables.name_columns(tables.as_name(*name))
        return self._translated(kind, source, **{n: part for n, part in parts.items() if part is not None})

    def topics(self, source: Source) -> list[dg.AssetSpec]:
        """The Kafka topics of a source, as assets outside of Dagster; a pattern is one asset."""
        names = source.topics or [f"topics like {source.topic_pattern}"]
        return [self._translated(KAFKA, source, topic=name) for name in names]

    def stages(self, source: Source) -> list[dg.AssetKey]:
        """The assets of one source, in the order of the data."""
        return [self.key(stage, source) for stage in STAGES]

    def run_keys(self, source: Source) -> list[dg.AssetKey]:
        """What one catch-up run of a source materializes."""
        return [*self.stages(source), *(self.key(stage) for stage in SHARED)]

    def _translated(self, stage: str, source: Source | None, **more: str) -> dg.AssetSpec:
        # The configuration's own source objects are meant: a model that holds dicts has no hash.
        place = (stage, source.name if source else None, *more.items())
        if place not in self._specs:
            default = self._default(stage, source, **more)
            # Topics are shared with whoever fills them, so their keys take no prefix.
            key = default.key if stage == KAFKA else dg.AssetKey([*self.prefix, *default.key.path])
            asset = CdcAsset(stage, default.replace_attributes(key=key), source, **more)
            self._specs[place] = self._translator.get_asset_spec(asset).replace_attributes(deps=[])
        return self._specs[place]

    def _default(self, stage: str, source: Source | None, **more: str) -> dg.AssetSpec:
        if source is None:
            return self._shared(stage)
        if stage == KAFKA:
            return self._topic(source, more["topic"])
        if stage == TABLE:
            return self._snapshot(source, tables.name_of(more))
        if stage in KINDS:
            return self._beside(stage, source, tables.name_of(more))
        return self._stage(stage, source)

    def _shared(self, stage: str) -> dg.AssetSpec:
        look = OF_ALL[stage]
        return dg.AssetSpec(
            stage,
            group_name=look.group,
            kinds=set(look.kinds),
            owners=OWNERS,
            description=look.description,
            metadata=declared_metadata(look.table, look.table.at(self.config.lake)) if look.table else {},
        )

    def _topic(self, source: Source, topic: str) -> dg.AssetSpec:
        named = topic if source.topics else source.name
        return dg.AssetSpec(
            dg.AssetKey(["kafka", tables.path_name(named)]),
            group_name="kafka",
            kinds={"kafka"},
            owners=OWNERS,
            description=f"Kafka: {topic}",
            metadata={
                "topic": topic,
                "servers": self.config.kafka_properties(source).get("bootstrap.servers", ""),
            },
        )

    def _stage(self, stage: str, source: Source) -> dg.AssetSpec:
        fmt, look = FORMATS[source.format], OF_SOURCE[stage]
        whole = "" if fmt.part else " This format never splits a message: nothing is copied."
        path = look.table.at(self.config.lake, source=source.name, format=source.format) if look.table else ""
        middle = [source.format] if stage == "changes" else []
        text = look.description.format(source=source.name, whole=whole, summary=fmt.summary)
        return dg.AssetSpec(
            dg.AssetKey([stage, *middle, self.folders[source.name] if stage in _BY_FOLDER else source.name]),
            group_name=look.group,
            kinds=set(look.kinds),
            owners=list(source.owners) or OWNERS,
            description=" ".join(filter(None, (text, source.description))),
            tags={"cdc/format": source.format, SOURCE_TAG: self.tag(source), **source.tags},
            code_version=fmt.version if stage == "changes" else None,
            metadata=declared_metadata(look.table, path) if look.table else {},
        )

    def _snapshot(self, source: Source, name: tables.Name) -> dg.AssetSpec:
        folder, text = self.folders[source.name], ".".join(name)
        own = source.tables.description_of(*name)
        return dg.AssetSpec(
            dg.AssetKey(["snapshots", folder, *map(tables.path_name, name)]),
            group_name="snapshots",
            kinds=set(DELTA),
            owners=source.owners_of(*name) or OWNERS,
            description=own or f"Live rows of {literal(text)}, as the source {source.name} has them.",
            tags={
                "cdc/format": source.format,
                SOURCE_TAG: self.tag(source),
                **source.tags_of(*name),
            },
            metadata={
                "dagster/uri": tables.SNAPSHOT_PATH.of(self.config.lake, folder, name),
                "dagster/table_name": text,
                "why_a_row_is_as_it_is": shlex.join(["cdc-platform", "explain", source.name, text, "KEY"]),
                "as_it_was": shlex.join(["cdc-platform", "as-of", source.name, text, "TIME", "--to", "PATH"]),
            },
        )

    def _beside(self, kind: str, source: Source, name: tables.Name) -> dg.AssetSpec:
        table, look = self._snapshot(source, name), KINDS[kind]
        return table.replace_attributes(
            key=dg.AssetKey([kind, source.name, *table.key.path[2:]]),
            description=f"{look.about.format(literal('.'.join(name)))} Catch-up runs of {source.name} keep it up.",
            metadata={"dagster/uri": look.path.of(self.config.lake, source.name, name)},
        )


def _folders(config: Config) -> dict[str, str]:
    """Its own of each source where the lake can't be read: definitions must load."""
    from deltalake.exceptions import DeltaError

    try:
        return {s.name: folders.folder(stores.lake(config), s.name) for s in config.sources}
    except (DeltaError, LakeChanged, StorageError, OSError) as error:
        log.warning("the lake can't be read, so sources are taken to have the folders of their names: %s", error)
        return {s.name: s.name for s in config.sources}


def with_deps(spec: dg.AssetSpec, deps: Iterable[dg.AssetKey]) -> dg.AssetSpec:
    """The spec with dependencies."""
    return spec.replace_attributes(deps=list(deps))
