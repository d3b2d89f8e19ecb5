"""Topics of a source that bring no changes, so that nothing is missing while nothing comes by them.

That a partition has brought control events alone so far says nothing of what is to come: a capture may send all that it
has to one topic. So the topic must be known by its name, and where a table's may have that name by what came; and no
partition of it may have brought anything else.
"""

import re
from collections.abc import Mapping

from cdc_platform.config import Config, Source
from cdc_platform.formats import FORMATS
from cdc_platform.formats.contract import ControlTopics
from cdc_platform.lake import queries, stores
from cdc_platform.lake.queries import OUTCOMES, text
from cdc_platform.lake.watermarks import Where
from cdc_platform.tables import CONTROL_EVENTS

_OTHERS = tuple(outcome for outcome in OUTCOMES if outcome != "control")


def found(config: Config, source: Source, ledger: Mapping[Where, Mapping[str, int]]) -> set[str]:
    """Such topics of a source. ledger: what became of the records of each partition (queries.ledger)."""
    known = FORMATS[source.format].control_topics
    named = [(t, k) for t in sorted({topic for topic, _ in ledger}) for k in known if re.fullmatch(k.name, t)]
    return {topic for topic, kind in named if _alone(topic, ledger) and _proven(config, source, topic, kind)}


def _alone(topic: str, ledger: Mapping[Where, Mapping[str, int]]) -> bool:
    """Whether no partition of a topic has brought anything but control events."""
    return not any(told[o] for (of, _), told in ledger.items() if of == topic for o in _OTHERS)


def _proven(config: Config, source: Source, topic: str, of: ControlTopics) -> bool:
    if not of.kinds:
        return True
    kinds = ", ".join(map(text, sorted(of.kinds)))
    where = f"source = {text(source.name)} AND topic = {text(topic)} AND kind IN ({kinds})"
    path = CONTROL_EVENTS.at(stores.lake(config))
    return bool(queries.query(f"SELECT 1 AS there FROM t WHERE {where} LIMIT 1", t=path))
