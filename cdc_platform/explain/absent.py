"""Why a row isn't there. Reasons that are sure come first; the others are what may hold it back."""

from cdc_platform import tables
from cdc_platform.changelog.schema import BY_ROWS, Step
from cdc_platform.config import Config, Source
from cdc_platform.explain import held, snapshot_state
from cdc_platform.explain.changes import ended
from cdc_platform.explain.events import left_out_by
from cdc_platform.explain.reason import Reason
from cdc_platform.explain.row import Explained
from cdc_platform.explain.table import Table
from cdc_platform.lake import batches, stores
from cdc_platform.lake.queries import query
from cdc_platform.landing.erased import erased_before


def reasons(config: Config, told: Explained) -> list[Reason]:
    """Why a row isn't there (or isn't as the changes have it). Asks Kafka, where nothing in the lake says it."""
    known = [r for r in (by_rule(told.table), _by_change(told), _by_state(config, told)) if r is not None]
    settled = any(r.sure for r in known)
    known += held.of_it(config, told)  # a delete says nothing of what came after it
    known += held.decoded(config, told)
    known += () if settled else held.perhaps(config, told.table, told.moment)
    if not known:
        known.append(_never(config, told))
    return sorted(known, key=lambda r: not r.sure)


def by_rule(table: Table) -> Reason | None:
    """That a rule leaves the table out."""
    rule = left_out_by(table.source, table.name)
    return None if rule is None else Reason("filtered", f"its table is left out by {rule}", sure=True)


def _by_change(told: Explained) -> Reason | None:
    """What the changes of the key say."""
    row, found = told.row, told.found
    if row.truncated is not None:
        return Reason("truncated", "its table was emptied by TRUNCATE", sure=True, by=row.truncated)
    if row.last is not None and row.cells is None:
        by = found.original(row.last.change)
        if row.last.moved is not None:
            key = ", ".join(f"{k}={v}" for k, v in row.last.moved.items())
            return Reason(
                "moved", f"its key was changed: it is {key} since", sure=True, by=by, more={"to": row.last.moved}
            )
        return Reason("deleted", "it was deleted", sure=True, by=by)
    if row.last is None and found.gone and (step := ended(told.table, found.gone)) is not None:
        return _by_statement(step)
    return None


def _by_statement(step: Step) -> Reason:
    """What DDL, or what stands for it, did to the row's table."""
    address = "/".join(map(str, step.address[:3]))
    said, more = f"{step.ddl[:200]} ({address})", {"ddl": step.ddl, "address": address}
    if step.ddl in BY_ROWS:
        why = f"the table's rows were read from the source once more, and it wasn't among them: {said}"
        return Reason("not read", why, sure=True, more=more)
    if (after := step.effect.after) is None:
        return Reason("dropped", f"its table was dropped: {said}", sure=True, more=more)
    name = ".".join(after)
    return Reason("renamed", f"its table is called {name} since: {said}", sure=True, more={**more, "to": name})


def _by_state(config: Config, told: Explained) -> Reason | None:
    """What is known of the snapshot: it isn't kept up to date, or hasn't come to the changes yet."""
    of_snapshot = snapshot_state.of(config, told.table)
    if of_snapshot is not None and (told.moment.now or told.agrees is False):
        return of_snapshot.reason(sure=told.agrees is False)
    if told.agrees is not False:
        return None
    if not told.moment.now:
        why = (
            "the snapshot of the cut has another row than the changes that had come by then come to: one was used only "
            "later, as from quarantine, or decoded again since"
        )
        return Reason("differs", why, sure=False)
    last = told.row.last
    if last is not None and _behind(config, told.table.source):
        why = "the snapshots stage hasn't come to all of its source's changes: `cdc-platform run` does"
        return Reason("not applied", why, sure=True, by=told.found.original(last.change))
    why = "the changes come to another row than the snapshot has: `cdc-platform run --table DB.TABLE --rebuild`"
    return Reason("differs", why, sure=False)


def _behind(config: Config, source: Source) -> bool:
    """Whether there are changes that the snapshots stage hasn't taken. The order of those it has says nothing of late
    ones."""
    lake = stores.lake(config)
    taken = tables.CHECKPOINT.at(lake, room="snapshots", source=source.name)
    return batches.behind(tables.CHANGELOG.at(lake), taken, source=source.name)


def _never(config: Config, told: Explained) -> Reason:
    source = told.table.source
    if not told.moment.now:
        return Reason("never seen", "no change of it had come by then", sure=True)
    if gone := erased_before(config, source.name, told.table.names, told.key):
        why = f"erasure {gone['number']} took it out ({gone['at']:%F %T} UTC), and no change has come since"
        return Reason("erased", why, sure=True)
    first = query(
        "SELECT min(landed_at) AS at FROM t",
        t=tables.LANDING.at(stores.lake(config), source=source.name),
    )
    since = f" since landing began ({first[0]['at']:%F %T} UTC)" if first and first[0]["at"] else ""
    why = f"no change of it has come{since}: a row from before that comes with an initial load or its next change"
    return Reason("never seen", why, sure=True)
