"""The lake in use, as a replay compares with it: how far its messages are decoded, and the versions of its snapshots
that hold just that."""

from collections.abc import Mapping
from dataclasses import dataclass

from cdc_platform.changes.run import messages_path
from cdc_platform.config import Config, Source
from cdc_platform.errors import NotReadable
from cdc_platform.formats import FORMATS
from cdc_platform.lake import batches, delta_table, folders, stores
from cdc_platform.lake.batches import End
from cdc_platform.lake.writer_lock import source_lock
from cdc_platform.reading import catalog, described
from cdc_platform.reading.catalog import State, TableName
from cdc_platform.tables import CHANGELOG, CHANGES, CHECKPOINT

_RUN = ["`cdc-platform run` first"]


@dataclass(frozen=True, slots=True)
class Present:
    """until: how far the table of whole messages is decoded; messages: that table's id; changes: version of the table
    that has what it was decoded to. tables: every table of the
    source, with the version of its snapshot (None: there is none); states: what became of those that a batch met."""

    until: End
    messages: str
    changes: int
    tables: Mapping[TableName, int | None]
    states: Mapping[TableName, State]


def look(config: Config, source: Source) -> Present:
    """Looks while nobody writes the source. Raises RunInProgress, NotReadable where its tables don't hold all that is
    decoded."""
    lake = stores.lake(config)
    messages, changes = messages_path(config, source), CHANGES.at(lake, format=source.format, source=source.name)

    def checkpoint(room: str) -> "stores.Store":
        return CHECKPOINT.at(lake, room=room, source=source.name)

    with source_lock(config, source):
        if not (delta_table.exists(messages) and delta_table.exists(changes)):
            raise NotReadable(source.name, "nothing of it has been decoded yet", _RUN)
        stages = ((changes, checkpoint("changelog"), {}), (CHANGELOG.at(lake), checkpoint("snapshots"), _of(source)))
        if any(not delta_table.exists(path) or batches.behind(path, at, **of) for path, at, of in stages):
            raise NotReadable(source.name, "its tables don't hold yet what is decoded: a run was ended before", _RUN)
        until = batches.reached(messages, checkpoint("changes"))
        ahead = needs.room if (needs := FORMATS[source.format].context) else None
        if ahead is not None and batches.reached(messages, checkpoint(ahead)) != until:
            raise NotReadable(source.name, "DDL of messages is read that aren't decoded: a run was ended before", _RUN)
        paths = {n: folders.snapshot(lake, source.name, n.name) for n in described.known(config, source.name)}
        versions = {n: delta_table.version(p) if delta_table.exists(p) else None for n, p in paths.items()}
        at = batches.identity(messages), delta_table.version(changes)
        return Present(until, *at, versions, catalog.states(lake, source.name))


def _of(source: Source) -> dict[str, str]:
    return {"source": source.name}
