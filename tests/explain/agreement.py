"""Explanations of every row of some snapshots, held against these."""

from base64 import b64encode
from collections import Counter
from typing import Any

from cdc_platform.config import Config, Source
from cdc_platform.config.tables import ORIGIN
from cdc_platform.explain import message
from cdc_platform.explain.records import Address
from cdc_platform.explain.row import explain
from cdc_platform.explain.table import find
from cdc_platform.lake import queries, stores
from cdc_platform.reading.catalog import states
from cdc_platform.reading.moments import Moment
from cdc_platform.tables import LANDING, SNAPSHOT_PATH
from tests.changelog.feed import read


def canonical(value: Any) -> str:
    """A snapshot's value as the key's text."""
    if isinstance(value, bool):
        return str(int(value))
    return b64encode(value).decode() if isinstance(value, bytes) else str(value)


def of_every_row(config: Config, source: Source) -> tuple[int, list[str]]:
    """How many rows were explained, and which explanation comes to another row than the snapshot has."""
    explained, wrong = 0, []
    for name, state in states(stores.lake(config), source.name).items():
        if state.state != "live":
            continue
        for row in read(SNAPSHOT_PATH.of(stores.lake(config), source.name, name.name).uri()).to_pylist():
            origin = f"{row[ORIGIN[0]]}.{row[ORIGIN[1]]}" if ORIGIN[0] in row else name.text
            table = find(config, source, origin)
            if not table.keys:
                break
            key = {k: canonical(row[k]) for k in table.keys}
            told = explain(config, table, key, Moment())
            explained += 1
            if not (told.here and told.agrees is True and set(told.row.cells or ()) == {c.name for c in table.columns}):
                wrong.append(f"{origin} {key}: {told.row.cells}, stored {told.stored}")
    return explained, wrong


def outcomes(config: Config, source: Source) -> tuple[dict[str, int], dict[str, int]]:
    """Records by outcome: as `show` tells each one, and as the ledger counts them. A part counts as its message."""
    rows = queries.query(
        'SELECT topic, partition, "offset" FROM t', t=LANDING.at(stores.lake(config), source=source.name)
    )
    shown: Counter[str] = Counter()
    for row in rows or []:
        told = message.look(config, source, Address(row["topic"], row["partition"], row["offset"]))
        shown[told["whole"] if told["outcome"] == "joined" else told["outcome"]] += 1
    counted: Counter[str] = Counter()
    for row in queries.ledger(config, [source]):
        counted.update({outcome: row[outcome] for outcome in queries.OUTCOMES if row[outcome]})
    return dict(shown), dict(counted)
