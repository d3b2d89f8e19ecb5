"""Broken messages through every decoder: `make fuzz`, or `python -m tests.formats.fuzz --format debezium`.

Messages come from a format's fixtures and, where the demo has a feed of it, from there, and are broken in bytes
and in structure. Whatever comes: an event for every message, of a known kind and whole, no exception, in bounded
time, and messages beside a broken one decode as they do alone. A finding names the seed and the message.
"""

import argparse
import dataclasses
import json
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from google.protobuf.message import DecodeError

from cdc_platform.feeds.feeds import FEEDS
from cdc_platform.feeds.workload import Workload
from cdc_platform.formats import FORMATS
from cdc_platform.formats.contract import BAD_COLUMN, EVENT, KINDS, MESSAGE, OPS, PART, Format
from cdc_platform.formats.pb import tencent_dts_pb2 as pb
from tests.formats import canal_fixtures, dts_fixtures, json_fixtures
from tests.formats.contexts import context_of
from tests.formats.mutations import broken

FIXTURES = Path(__file__).parents[1] / "fixtures"
MANY = 100_000
_BATCH = 250
_SECONDS_PER_BATCH, _SECONDS_PER_MB = 20, 5
_MEMORY_MB = 1500
_LONGEST_SEED = 20_000  # the demo's 2 MB rows would take all the time


@dataclass(frozen=True, slots=True)
class Seed:
    """A message that the vendor might have sent, and the options it is to be read with."""

    topic: str
    key: bytes | None
    value: bytes | None
    options: Any


def seeds(name: str) -> list[Seed]:
    """All messages of a format's fixtures and of the demo's feed. Fixtures are read as `json_fixtures` says; a
    format with a notation of its own has its reader in `_READERS`."""
    format_ = FORMATS[name]
    paths = sorted(p for p in (FIXTURES / name).glob("*.json") if not p.name.endswith(".expected.json"))
    found = [seed for path in paths for seed in _READERS.get(name, _messages)(format_, path)]
    assert found, f"no seeds of {name} in {FIXTURES / name}: give fuzz._READERS a reader of its notation"
    feeds = [feed for feed in FEEDS.values() if feed.format == name]
    if format_.part is None:
        for feed in feeds:
            records = feed.encoder().encode(Workload(1, 5).transactions)
            found += [Seed(r.topic, r.key, r.value, format_.options()) for r in islice(records, 60)]
    return [s for s in found if len(s.value or b"") <= _LONGEST_SEED]


def _messages(format_: Format, path: Path) -> Iterator[Seed]:
    options, records = json_fixtures.records(path)
    for topic, key, value in records:
        yield Seed(topic, key, value, format_.options(**options))


def _dts(format_: Format, path: Path) -> Iterator[Seed]:
    batch, _ = dts_fixtures.load(path.stem)
    for value in batch.column("value").to_pylist():
        yield Seed("dts", None, value, format_.options())


def _canal(format_: Format, path: Path) -> Iterator[Seed]:
    values, options, _ = canal_fixtures.load(path.stem)
    for value in values:
        yield Seed("canal", None, value, format_.options(**options))


_READERS: dict[str, Callable[[Format, Path], Iterator[Seed]]] = {"tencent_dts": _dts, "canal": _canal}


class Finding(AssertionError):
    """What a decoder did wrong, with how to see it again."""


def fuzz(name: str, inputs: int, seed: int = 0) -> Counter[str]:
    """`inputs` broken messages through format `name`; the events by kind. Raises Finding."""
    pool, kinds = seeds(name), Counter[str]()
    by_options: dict[str, list[Seed]] = {}
    for s in pool:
        by_options.setdefault(repr(s.options), []).append(s)
    groups, weights = list(by_options.values()), [len(g) for g in by_options.values()]
    formats = {repr(g[0].options): _informed(FORMATS[name], g) for g in groups}
    for number in range(0, inputs, _BATCH):
        rng = random.Random(f"{name} {seed} {number}")
        group = rng.choices(groups, weights)[0]
        records = [_broken(rng, group) for _ in range(min(_BATCH, inputs - number))]
        good = rng.choice(group)
        records.insert(rng.randrange(len(records) + 1), (good.topic, good.key, good.value))
        kinds += _check(
            formats[repr(group[0].options)], records, group[0].options, good, f"{name}, seed {seed}, batch {number}"
        )
    return kinds


def _informed(format_: Format, group: list[Seed]) -> Format:
    """The format with a decoder that knows the DDL among its seeds, where it needs that."""
    if format_.context is None:
        return format_
    options = group[0].options
    seen = format_.decode(_batch([(s.topic, s.key, s.value) for s in group]), options)
    told = context_of(format_, options, seen)
    return dataclasses.replace(format_, decode=lambda batch, o: format_.decode(batch, o, told))


def _broken(rng: random.Random, group: list[Seed]) -> tuple[str, bytes | None, bytes | None]:
    chosen = rng.choice(group)
    others = [s.value for s in rng.choices(group, k=4) if s.value] or [b"{}"]
    key, value = chosen.key, chosen.value or b""
    if key and rng.random() < 0.1:
        return chosen.topic, broken(rng, key, others), value
    return chosen.topic, key, broken(rng, value, others)


def _batch(records: list[tuple[str, bytes | None, bytes | None]]) -> pa.RecordBatch:
    rows = [
        {"topic": t, "partition": i % 3, "offset": i, "key": k, "value": v, "headers": []}
        for i, (t, k, v) in enumerate(records)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=MESSAGE)


def _check(format_: Format, records: list, options: Any, good: Seed, where: str) -> Counter[str]:
    batch = _batch(records)
    size = sum(len(v or b"") for _, _, v in records)
    started = time.monotonic()
    try:
        events = format_.decode(batch, options)
        parts = format_.part.parse(batch) if format_.part else None
    except BaseException as error:  # a panic in Rust is no Exception
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        culprit = _culprit(format_, records, options)
        raise Finding(f"{where}: {type(error).__name__}: {error}; by {culprit}") from error
    seconds = time.monotonic() - started
    if seconds > _SECONDS_PER_BATCH + _SECONDS_PER_MB * size / 1e6:
        raise Finding(f"{where}: {len(records)} messages of {size} bytes took {seconds:.1f} s")
    _whole(events, records, where)
    _refused(format_.name, events, records, where)
    if parts is not None and (parts.schema != PART or parts.num_rows != len(records)):
        raise Finding(f"{where}: {parts.num_rows} parts of {len(records)} records")
    _beside(format_, events, records, options, good, where)
    return Counter(events.column("kind").to_pylist())


def _culprit(format_: Format, records: list, options: Any) -> str:
    for record in records:
        try:
            format_.decode(_batch([record]), options)
        except BaseException:  # noqa: BLE001 - whatever it is, this is the one
            return shown(record)
    return "no message alone"


def shown(record: tuple[str, bytes | None, bytes | None]) -> str:
    """A record as Python source, cut when long."""
    text = repr(record)
    return text if len(text) < 4000 else f"{text[:4000]}… ({len(text)} characters)"


_NEEDS: dict[str, Callable[[dict], Any]] = {
    "insert": lambda e: e["after"] is not None and e["before"] is None,
    "read": lambda e: e["after"] is not None and e["before"] is None,
    "update": lambda e: e["after"] is not None,
    "delete": lambda e: e["after"] is None and (e["before"] is not None or e["key"] is not None),
    "truncate": lambda e: e["after"] is None and e["before"] is None and e["db"] and e["table"],
}
"""What a row change of each op must have."""


def _reason(e: dict) -> Any:
    return (e["reason"] or "").strip()


def _told(key: list[tuple[str, str | None]]) -> bool:
    return all(v is not None for _, v in key) and len(dict(key)) == len(key)


_CHECKS: dict[str, tuple[tuple[str, Callable[[dict], Any]], ...]] = {
    "error": (
        ("no reason", _reason),
        ("a key that is NULL, empty or twice", lambda e: e["key"] is None or (e["key"] and _told(e["key"]))),
        ("more than the bad column", lambda e: e["info"] is None or [k for k, _ in e["info"]] == [BAD_COLUMN]),
        ("an image", lambda e: e["before"] is None and e["after"] is None),
    ),
    "skip": (("no reason", _reason),),
    "schema": (
        ("no columns", lambda e: json.loads(e["columns"])),
        ("whose columns", lambda e: e["schema_version"] and e["db"] and e["table"]),
    ),
    "row": (
        ("a row without what its op needs", lambda e: e["op"] in OPS and e["table"] and _NEEDS[e["op"]](e)),
        ("a key that is NULL", lambda e: all(v is not None for _, v in e["key"] or ())),
        ("a column twice", lambda e: all(len(dict(e[m] or ())) == len(e[m] or ()) for m in ("key", "before", "after"))),
    ),
}
"""What events of a kind must be like."""


def _whole(events: pa.RecordBatch, records: list, where: str) -> None:
    """Every message has an event, and every event what its kind needs."""
    events.validate(full=True)
    if events.schema != EVENT:
        raise Finding(f"{where}: not EVENT's columns")
    rows = events.to_pylist()
    if lost := set(range(len(records))) ^ {e["offset"] for e in rows}:
        raise Finding(f"{where}: no event for {[shown(records[i]) for i in sorted(lost)]}")
    versions = {e["schema_version"] for e in rows if e["kind"] == "schema"} | {None}
    seen: set[tuple] = set()
    for e in rows:
        address = (e["offset"], e["entry_index"], e["row_index"])
        problems = [text for text, fine in _CHECKS.get(e["kind"], ()) if not fine(e)]
        if e["kind"] not in KINDS or e["partition"] != e["offset"] % 3:
            problems.append("unknown kind or another's address")
        if e["kind"] == "row":
            problems += ["two rows at one address"] * (address in seen)
            problems += ["a schema version that nothing told"] * (e["schema_version"] not in versions)
            seen.add(address)
        if problems:
            raise Finding(f"{where}: {problems[0]}: {e} of {shown(records[e['offset']])}")


def _json_reads(value: bytes) -> bool:
    try:
        json.loads(value.decode())
    except ValueError:
        return False
    except RecursionError:
        pass
    return True


def _dts_reads(value: bytes) -> bool:
    try:
        pb.Entries.FromString(value)
    except DecodeError:
        return False
    return True


_ORACLES: dict[str, Callable[[bytes], bool]] = {
    "tencent_dts": _dts_reads,
    **dict.fromkeys(("debezium", "canal_json", "dataworks", "tdsql"), _json_reads),
}
"""Whether another parser can read a value: what it can't, the decoder must refuse too."""


def _refused(name: str, events: pa.RecordBatch, records: list, where: str) -> None:
    reads = _ORACLES.get(name)
    if reads is None:
        return
    made: dict[int, set[str]] = {}
    for offset, kind in zip(*(events.column(c).to_pylist() for c in ("offset", "kind")), strict=True):
        made.setdefault(offset, set()).add(kind)
    for i, record in enumerate(records):
        if record[2] is not None and made[i] != {"error"} and not reads(record[2]):
            raise Finding(f"{where}: another parser can't read it, it became {made[i]}: {shown(record)}")


def _comparable(events: pa.RecordBatch) -> list[dict]:
    """Schema events come once per batch; where in the text JSON is broken depends on what was read of it before."""
    rows = [e for e in events.to_pylist() if e["kind"] != "schema"]
    return [{**e, "reason": None} if e["kind"] == "error" else e for e in rows]


def _beside(format_: Format, events: pa.RecordBatch, records: list, options: Any, good: Seed, where: str) -> None:
    """A good message and some broken ones decode alone as they did among the others."""
    told: dict[int, list[dict]] = {}
    for e in _comparable(events):
        told.setdefault(e["offset"], []).append(e)
    sample = [i for i, r in enumerate(records) if r == (good.topic, good.key, good.value)]
    for i in {*sample[:1], *range(0, len(records), 60)}:
        alone = _comparable(format_.decode(_batch(records).slice(i, 1), options))
        if alone != told[i]:
            raise Finding(f"{where}: among others {told[i]}, alone {alone}: {shown(records[i])}")


def main() -> None:
    """Command line: one line per format, or the finding."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--format", action="append", choices=FORMATS, help="default: all")
    parser.add_argument("--inputs", type=int, default=MANY, help=f"broken messages per format (default {MANY})")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other messages (default 0)")
    args = parser.parse_args()
    for name in args.format or FORMATS:
        started = time.monotonic()
        kinds = fuzz(name, args.inputs, args.seed)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        counted = ", ".join(f"{n} {kind}" for kind, n in kinds.most_common())
        seconds = time.monotonic() - started
        sys.stdout.write(f"{name}: {args.inputs} messages in {seconds:.0f} s, peak {peak} MB: {counted}\n")
        if peak > _MEMORY_MB:
            raise Finding(f"{name}: {peak} MB of memory, more than {_MEMORY_MB}")


if __name__ == "__main__":
    main()
