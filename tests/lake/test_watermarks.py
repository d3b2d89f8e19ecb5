"""What publications rest on: the newest that is true without what is held is found, whatever a lake has of them."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.config import Config
from cdc_platform.config.storage import Storage
from cdc_platform.lake import delta_table, stores, watermarks
from cdc_platform.lake.past import Past
from cdc_platform.lake.store import Store
from cdc_platform.lake.watermarks import Behind, Complete
from cdc_platform.snapshots import state
from cdc_platform.snapshots.cuts import complete, holds
from cdc_platform.snapshots.cuts.holds import Hold, Missing
from cdc_platform.tables import OFFSET_LEDGER, WATERMARKS, Name, name_columns
from tests.properties import examples
from tests.rows import add

T0 = datetime(2026, 11, 20, tzinfo=UTC)
A, B = ("t", 0), ("t", 1)
ONE, TWO = ("d", "one"), ("d", "two")


def at(second: float) -> datetime:
    return T0 + timedelta(seconds=second)


def ends(**of: int) -> list[dict[str, Any]]:
    """Of partitions a and b, of the source."""
    return [{"topic": "t", "partition": "ab".index(p), "offset": offset} for p, offset in of.items()]


def told(number: int, second: float, rests: list[dict[str, Any]] | None, **more: Any) -> dict[str, Any]:
    said = {"source": "s", "scope": "source", "batch": number, "source_time": at(second), "proven": True}
    return {**said, "behind": [], "at": at(second), "end_offsets": rests, **more}


def reached(config: Config, batch: int, **of: tuple[int, float]) -> None:
    """What partitions have in the changelog: last offset, time."""
    said = {"source": "s", "scope": "partition", "batch": batch, "topic": "t", "at": at(0)}
    rows = [
        {**said, "partition": "ab".index(p), "offset": offset, "source_time": at(second)}
        for p, (offset, second) in of.items()
    ]
    add(config.lake, WATERMARKS, *rows)


def test_a_publication_stands_without_what_it_does_not_rest_on():
    found = Complete(0, at(1), True, None, {TWO: Behind(at(0), "why", ends={A: 3})}, ends={A: 5, B: 7})
    assert found.stands(None, {}) and found.stands(None, {A: 5, B: 9})
    assert not found.stands(None, {A: 4}) and not found.stands(ONE, {A: 5, B: 6})
    assert found.stands(TWO, {A: 3}) and not found.stands(TWO, {A: 3, B: 6}) and not found.stands(TWO, {A: 2})
    assert found.stands(None, {("t", 2): 0}), "nothing of it had come"
    untold = Complete(0, at(1), True, None)
    assert untold.stands(TWO, {}) and not untold.stands(TWO, {A: 99})


def test_earlier_publications_are_read_as_they_are_asked_for(config: Config, monkeypatch: pytest.MonkeyPatch):
    odd = ("d", "t'w{o}")
    lower = {"db": "d", "table": odd[1], **ends(a=1)[0]}
    behind = [{"db": "d", "table": odd[1], "source_time": at(0.5), "reason": "why"}]
    numbers = [n for n in range(1_000) if n < 3 or n > 400 or n % 60 == 0]  # others were folded
    rows = [told(n, n, None if n < 2 else [*ends(a=n, b=5), lower], behind=behind) for n in numbers]
    add(config.lake, WATERMARKS, *rows, told(1_000, 950.5, ends(a=1_000)), told(1_001, 2_000, ends(a=1_001)))
    path, asked = WATERMARKS.at(stores.lake(config)), []
    ask = delta_table.ask
    monkeypatch.setattr(delta_table, "ask", lambda sql, **paths: asked.append(sql) or ask(sql, **paths))
    last = watermarks.complete(path, "s")
    assert last is not None and last.number == 1_001

    def found(name: Any, **held: int) -> list[int]:
        where = {("t", "ab".index(p)): offset for p, offset in held.items()}
        return [p.number for p in islice(Past(path, "s").earlier(last.number, name, where), 3)]

    asked.clear()
    assert found(None, a=1_000) == [999, 998, 997], "of the latest time first"
    assert len(asked) == 2 + 3, "one for each that is told"
    assert found(ONE, a=960, b=5) == [960, 959, 958] and found(ONE, b=4) == [1_000], "nothing had come by b"
    assert found(odd, a=0) == [] and found(odd, a=1) == [999, 998, 997]
    assert found(None, a=1) == [], "others don't tell"


def published(config: Config, monkeypatch: pytest.MonkeyPatch, missing: Missing, states: Any = None) -> Complete:
    monkeypatch.setattr(holds, "missing", lambda *_: missing)
    monkeypatch.setattr(state, "were_live", lambda *_: {ONE, TWO})
    complete.publish(config, config.source("s"), states or {})
    found = watermarks.complete(WATERMARKS.at(stores.lake(config)), "s")
    assert found is not None
    return found


def of(name: Any, where: Any, offset: int) -> Missing:
    return Missing([], {name: [Hold(where, offset, f"holds {offset}")]})


NOTHING = Missing([], {})


def earlier_lake(config: Config, last: dict[str, Any]) -> None:
    """Its newest publication, as a version wrote it that didn't tell what it rests on."""
    import pyarrow as pa

    schema = WATERMARKS.arrow()
    before = schema.remove(schema.get_field_index("end_offsets"))
    row = {k: v for k, v in last.items() if k != "end_offsets"}
    path = WATERMARKS.at(str(config.lake))
    write_deltalake(path, pa.Table.from_pylist([row], before), partition_by=list(WATERMARKS.partition_by))


def test_a_lake_of_an_earlier_version_tells_what_it_rests_on_from_its_next_run_on(config: Config, monkeypatch: Any):
    earlier_lake(config, told(7, 500, None, proven=False, reason="nothing that tells a time comes by t/1"))
    assert watermarks.complete(WATERMARKS.at(stores.lake(config)), "s") is not None
    complete.delta_sql.ensure(WATERMARKS, WATERMARKS.at(stores.lake(config)))
    reached(config, 1, a=(9, 500), b=(4, 100))
    found = published(config, monkeypatch, NOTHING)
    assert (found.number, found.source_time, found.proven, found.ends) == (8, at(500), False, {A: 10, B: 5})
    assert published(config, monkeypatch, NOTHING).number == 8
    found = published(config, monkeypatch, of(ONE, B, 5))
    assert (found.of(ONE), found.of(TWO)) == (at(500), at(500)), "it was told before that had come"


def test_what_an_earlier_version_told_does_not_count_while_something_is_held(config: Config, monkeypatch: Any):
    held = [{"db": "d", "table": "one", "source_time": at(500), "reason": "holds 5"}]
    earlier_lake(config, told(7, 500, None, behind=held))
    complete.delta_sql.ensure(WATERMARKS, WATERMARKS.at(stores.lake(config)))
    reached(config, 1, a=(9, 500), b=(6, 100))
    found = published(config, monkeypatch, of(ONE, B, 5))
    assert (found.source_time, found.of(ONE), found.behind[ONE].ends) == (at(500), None, {B: 5})


def test_what_is_landed_and_is_no_event_counts_as_told_where_all_is_taken_up(config: Config, monkeypatch: Any):
    """A time may rest on it that nothing else came by a partition."""
    said = {"source": "s", "batch": 0, "topic": "t"}
    for partition, taken in ((0, 20), (1, 3)):
        row = {**said, "partition": partition, "from_offset": 0}
        add(
            config.lake,
            OFFSET_LEDGER,
            {**row, "room": "landing", "outcome": "landed", "to_offset": 19, "records": 20},
            {**row, "room": "changelog", "outcome": "applied", "to_offset": taken - 1, "records": taken},
        )
    reached(config, 1, a=(9, 500), b=(2, 500))
    found = published(config, monkeypatch, NOTHING)
    assert (found.source_time, found.ends) == (at(500), {A: 20, B: 3})
    assert published(config, monkeypatch, of(ONE, B, 3)).of(ONE) == at(500)
    assert published(config, monkeypatch, of(ONE, A, 19)).of(ONE) == at(500), "that its own partition tells"
    assert published(config, monkeypatch, of(ONE, B, 2)).of(ONE) is None


@pytest.mark.parametrize("name", [ONE, None])
def test_a_time_goes_back_to_the_newest_that_rests_on_none_of_what_is_held(config: Config, monkeypatch: Any, name: Any):
    add(config.lake, WATERMARKS, told(0, 500, ends(a=10, b=5), proven=False), told(1, 600, ends(a=20, b=7)))
    reached(config, 1, a=(19, 600), b=(6, 100))

    def held(*offsets: tuple[Any, int]) -> tuple[datetime | None, int]:
        lacks = [Hold(where, offset, f"holds {offset}") for where, offset in offsets]
        found = published(config, monkeypatch, Missing([], {name: lacks}) if name else Missing(lacks, {}))
        assert name is None or (found.source_time, found.proven) == (at(600), True)
        assert name or found.proven is (found.source_time != at(500))
        return (found.of(name) if name else found.source_time), found.number

    assert held((B, 7)) == (at(600), 2)
    assert held((B, 6)) == (at(500), 3)
    assert held((B, 6)) == (at(500), 3)
    monkeypatch.setattr(Past, "earlier", None)  # once it is published, the newest tells all
    assert held((A, 20), (B, 6))[0] == at(500)
    monkeypatch.undo()
    assert held((B, 4))[0] is None


def test_a_table_that_is_not_kept_stays_where_it_was_with_what_that_rests_on(config: Config, monkeypatch: Any):
    reached(config, 1, a=(9, 500), b=(4, 400))
    assert published(config, monkeypatch, NOTHING).of(ONE) == at(400)
    reached(config, 2, a=(19, 900), b=(9, 900))
    stopped = {ONE: {"state": "stopped", "reason": "why"}}
    for missing in (NOTHING, of(ONE, B, 7), of(ONE, B, 4)):
        found = published(config, monkeypatch, missing, stopped)
        assert (found.source_time, found.of(ONE), found.behind[ONE].ends) == (at(900), at(400), {A: 10, B: 5})
    for missing, one in ((of(ONE, B, 7), at(400)), (of(ONE, B, 4), None)):
        found = published(config, monkeypatch, missing)
        assert (found.source_time, found.of(ONE)) == (at(900), one)


def test_a_stopped_table_rests_on_what_no_table_has_any_more(config: Config, monkeypatch: Any):
    reached(config, 1, a=(9, 500), b=(4, 400))
    published(config, monkeypatch, NOTHING)
    held = Missing([Hold(B, 4, "holds 4")], {})
    found = published(config, monkeypatch, held, {ONE: {"state": "stopped", "reason": "why"}})
    assert (found.source_time, found.ends) == (None, {A: 10, B: 4})
    assert (found.of(ONE), found.behind[ONE].ends) == (at(400), {B: 5})
    assert published(config, monkeypatch, held).of(ONE) is None


_TIMES = st.none() | st.integers(0, 20).map(at)
_OFFSETS = st.integers(0, 30)
_ENDS = st.dictionaries(st.sampled_from([A, B]), _OFFSETS)
_BEHIND = st.dictionaries(st.sampled_from([ONE, TWO]), st.builds(Behind, _TIMES, st.just("why"), ends=_ENDS))


@examples(60)
@given(st.lists(st.tuples(st.sampled_from("ab"), _OFFSETS, _TIMES)), st.lists(_OFFSETS, min_size=1))
def test_a_partition_s_watermark_is_the_latest_that_was_told_before_an_offset(rows: Any, asked: list[int]):
    said = {"source": "s", "scope": "partition", "topic": "t"}
    told = [{**said, "partition": "ab".index(p), "offset": o, "source_time": t} for p, o, t in rows]
    with lake_of([*told, {**said, "source": "other", "partition": 0, "offset": 0, "source_time": at(99)}]) as path:
        past = Past(path, "s")
        for offset in asked:
            for name in "ab":
                times = [t for p, o, t in rows if p == name and o < offset and t is not None]
                assert past.reached(("t", "ab".index(name)), offset) == max(times, default=None)


@examples(60)
@given(
    st.lists(st.builds(Complete, st.none(), _TIMES, st.just(True), st.none(), _BEHIND, ends=st.none() | _ENDS)),
    st.lists(st.tuples(st.sampled_from([None, ONE, TWO]), _ENDS), min_size=1, max_size=6),
)
def test_publications_that_stand_are_found_whoever_asked_before(made: list[Complete], asked: Any):
    known = [replace(p, number=n, behind=dict(sorted(p.behind.items()))) for n, p in enumerate(made)]
    known = [p if p.ends is not None else replace(p, behind={}) for p in known]
    with lake_of([publication(p) for p in known]) as path:
        past = Past(path, "s")
        for name, held in asked:
            stand = [p for p in known[:-1] if p.ends is not None and p.stands(name, held) and p.of(name) is not None]
            stand.sort(key=lambda p: (p.of(name), p.number), reverse=True)
            assert [p.number for p in past.earlier(len(known) - 1, name, held)] == [p.number for p in stand]


@contextmanager
def lake_of(rows: list[dict[str, Any]]) -> Iterator[Store]:
    with tempfile.TemporaryDirectory() as lake:
        add(lake, WATERMARKS, *rows)
        yield WATERMARKS.at(stores.of(lake, Storage()))


def publication(p: Complete) -> dict[str, Any]:
    of = {None: p.ends, **{n: b.ends for n, b in p.behind.items()}}
    rests = [
        {**(name_columns(n) if n else {}), "topic": t, "partition": i, "offset": o}
        for n, ends in of.items()
        for (t, i), o in (ends or {}).items()
    ]
    behind = [{**name_columns(n), "source_time": b.source_time, "reason": b.reason} for n, b in p.behind.items()]
    return {**told(p.number, 0, None if p.ends is None else rests, behind=behind), "source_time": p.source_time}


def test_rows_of_many_tables_that_are_held_take_a_few_queries(config: Config, monkeypatch: pytest.MonkeyPatch):
    for batch in range(3):
        reached(config, batch, a=(10 * batch + 9, batch), b=(10 * batch + 9, batch))
        published(config, monkeypatch, NOTHING)
    asked: list[str] = []
    ask = delta_table.ask
    monkeypatch.setattr(delta_table, "ask", lambda sql, **paths: asked.append(sql) or ask(sql, **paths))

    def queries(tables: int) -> int:
        held: dict[Name, list[Hold]] = {
            ("d", f"t{n:02}"): [Hold((A, B)[n % 2], 15 + n % 7, f"holds {n}")] for n in range(tables)
        }
        asked.clear()
        found = published(config, monkeypatch, Missing([], held))
        assert all(found.of(name) == at(hold.offset >= 20) for name, [hold] in held.items())
        return len(asked)

    few = queries(2)
    assert queries(40) <= few + 4, "four are of the two that were behind before"
    assert queries(40) < few
