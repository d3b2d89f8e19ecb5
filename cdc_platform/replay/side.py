"""The side lake of a source: a lake of its own below the one in use, in which the platform's stages decode once more
what was landed there.

`_replays/<source>/replay.json` says which of the numbered lakes beside it is at work, and of what: with other options,
other code or other rules a replay begins again in the next one, whose paths nobody has used before. The same replay,
interrupted or done, goes on from its checkpoints.
"""

import json
from contextlib import AbstractContextManager
from typing import Any

from cdc_platform import __version__
from cdc_platform.changes import decoded_by, in_force
from cdc_platform.config import Config, Source
from cdc_platform.config.replay import Replay, Start
from cdc_platform.formats import FORMATS
from cdc_platform.lake import lease, stores
from cdc_platform.lake.store import Store
from cdc_platform.replay.present import Present

FOLDER = "_replays"
RECORD = "replay.json"
_WAIT_S = 5.0
_CODE = decoded_by.code("cdc_platform.changelog", "cdc_platform.snapshots")
"""What makes a side lake's rows, as this process has loaded it: a checkout is changed without a new version."""


def held(config: Config, source: Source) -> AbstractContextManager[lease.Lease]:
    """Within it this process alone writes the source's side lake. Raises RunInProgress."""
    return lease.held(stores.lake(config).at(FOLDER), source.name, source.slug, _WAIT_S)


def opened(config: Config, source: Source, present: Present, since: tuple[Start, ...] = ()) -> Config:
    """The configuration of the side lake in which a source with its options is decoded again, up to where the present
    has it: of a replay of the same that was begun, else of a new one, and what was there is removed. Raises
    LeaseLost."""
    place, of = _folder(config, source), {**_of(source, present), "since": [list(s) for s in since]}
    number, before = _read(place)
    if before != of:
        number += 1
        lease.check()
        place.put(RECORD, json.dumps({"number": number, "of": of}, sort_keys=True).encode())
        _clear(place, but=number)
    until = present.until.version, present.until.file
    return config.replaying(source, place.uri(str(number)), Replay(stores.lake(config).uri(), until, since))


def discard(config: Config, source: Source) -> bool:
    """Removes the source's side lake, which is held. Returns whether there was one. Raises LeaseLost."""
    place = _folder(config, source)
    number, before = _read(place)
    lease.check()
    if before is not None:
        place.put(RECORD, json.dumps({"number": number, "of": None}).encode())
    _clear(place)
    return before is not None


def _folder(config: Config, source: Source) -> Store:
    return stores.lake(config).at(f"{FOLDER}/{source.name}")


def _read(place: Store) -> tuple[int, Any]:
    """Number of the newest side lake, and of what it is; None: it was removed, or there was none."""
    record = place.read(RECORD)
    told = json.loads(record) if record else {"number": 0, "of": None}
    return told["number"], told["of"]


def _of(source: Source, present: Present) -> dict[str, Any]:
    """What a replay's rows follow from."""
    return {
        "platform": __version__,
        "code": _CODE,
        "decoder": FORMATS[source.format].version,
        "options": in_force.values(source),
        "tables": source.tables.model_dump(mode="json"),
        "messages": present.messages,
    }


def _clear(place: Store, but: int | None = None) -> None:
    """Removes numbered lakes."""
    kept = f"{but}/"
    lease.check()  # the removal has no fence of its own
    place.remove(p for p in place.below("") if p != RECORD and not p.startswith(kept))
