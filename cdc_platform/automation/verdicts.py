"""The check `certified` of tables, told outside of their source's runs: a comparison changes what can be answered for,
and of a source that is quiet there is no run that would tell it."""

from collections.abc import Iterable
from contextlib import suppress

import dagster as dg

from cdc_platform import certificate
from cdc_platform.automation import table_events, table_status
from cdc_platform.automation.naming import Naming
from cdc_platform.certificate import BROKEN
from cdc_platform.config import Source
from cdc_platform.errors import RunInProgress
from cdc_platform.lake.writer_lock import source_lock

_WAIT_S = 5.0


def report_verdicts(instance: dg.DagsterInstance, naming: Naming, sources: Iterable[Source]) -> None:
    """Keeps the certificates of some sources as they are now, and tells Dagster of the tables it knows whose check says
    otherwise. Of the others the runs tell, and of a source with a run under way that run does: between two of its steps
    nothing can be judged."""
    for source in sources:
        with suppress(RunInProgress):
            with source_lock(naming.config, source, _WAIT_S):
                pass  # a certificate isn't judged while it is held
            _report_verdicts(instance, naming, source)


def _report_verdicts(instance: dg.DagsterInstance, naming: Naming, source: Source) -> None:
    found = [s for s in table_status.statuses(naming.config, source) if s.certificate]
    certificate.issue(naming.config, (s.certificate for s in found if s.certificate))
    keys = {naming.table(source, *s.id).key: s for s in found}
    made = table_events.newest(instance, keys)
    before = table_events.last_evaluations(instance, keys, (table_events.CERTIFIED,))
    for key, status in keys.items():
        intact = status.certificate is not None and status.certificate.verdict != BROKEN
        told = before.get(dg.AssetCheckKey(key, table_events.CERTIFIED))
        if told is not None and (told.passed is not intact or not told.counts):
            for result in table_events.check_results(status, key):
                if result.check_name == table_events.CERTIFIED:
                    instance.report_runless_asset_event(table_events.evaluation(result, made.get(key)))
