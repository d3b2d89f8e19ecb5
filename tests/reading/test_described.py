"""What is told of snapshots, by their logs where these tell it, else by their rows."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from cdc_platform.config import Config
from cdc_platform.lake import commits, deletion_vectors, folders, handles, looks, queries, stores
from cdc_platform.lake.commits import Marked
from cdc_platform.lake.data_files import Output, Sink
from cdc_platform.lake.store import Store, commit_name
from cdc_platform.reading import described
from cdc_platform.reading.catalog import TableName
from tests.lakes import store_at
from tests.properties import examples

AT = datetime(2026, 11, 20, 1, 2, 3, 456_789, tzinfo=UTC)
TIME = "_cdc_source_time"
SCHEMA = pa.schema([("id", pa.int64()), (TIME, pa.timestamp("us", "UTC"))])


def rows(times: Sequence[datetime | None]) -> pa.Table:
    return pa.table({"id": list(range(len(times))), TIME: list(times)}, SCHEMA)


def others(path: Store, *times: datetime | None) -> None:
    """By delta-rs, which tells times to the millisecond."""
    write_deltalake(path.uri(), rows(times), mode="append", storage_options=path.options)


def ours(path: Store, *times: datetime | None) -> None:
    if looks.look(path) is None:
        DeltaTable.create(path.uri(), SCHEMA, storage_options=path.options)
        handles.forget(path)
    out = Output(Sink(path, SCHEMA, (TIME,), ()))
    for batch in rows(times).to_batches():
        out.write(batch)
    if done := out.close():
        commits.append_files(out.sink, [done])


def untold(path: Store, *times: datetime | None) -> None:
    """Without statistics of the column."""
    none = {"delta.dataSkippingStatsColumns": "id"}
    write_deltalake(path.uri(), rows(times), mode="append", storage_options=path.options, configuration=none)


def last(path: Store) -> datetime | None:
    [found] = queries.query(f'SELECT max("{TIME}") AS at FROM t', t=path) or []
    return found["at"]


_TIMES = st.lists(st.none() | st.integers(0, 3_000).map(lambda us: AT + timedelta(microseconds=us)), max_size=3)


@examples(60)
@given(writes=st.lists(st.tuples(st.sampled_from((ours, others)), _TIMES), min_size=1, max_size=4))
def test_the_latest_time_of_a_log_is_that_of_the_rows(tmp_path_factory: Any, writes: Any) -> None:
    path = store_at(tmp_path_factory.mktemp("lake")).at("t")
    for write, times in writes:
        write(path, *times)
    look = looks.look(path)
    assert look is not None
    told = look.newest(TIME)
    assert told is None or told == (last(path),)
    if all(write is ours for write, _ in writes):
        assert told is not None


def test_of_rows_that_were_taken_out_nothing_is_told(store: Store) -> None:
    path = store.at("t")
    marks = {commits.VECTORS: "true"}
    DeltaTable.create(path.uri(), SCHEMA, configuration=marks, storage_options=path.options)
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    actions = [json.loads(line) for line in (path.read(commit_name(0)) or b"").splitlines()]
    actions = [{k: {**v, **features} if k == "protocol" else v for k, v in a.items()} for a in actions]
    path.put(commit_name(0), "\n".join(map(json.dumps, actions)).encode())  # as Spark makes it
    ours(path, AT, AT + timedelta(days=1), None)
    look = looks.look(path)
    assert look is not None and look.live is not None and look.newest(TIME) == (AT + timedelta(days=1),)
    with deletion_vectors.Vectors(path) as new:
        marked = Marked(look.live.adds[0], new.add(BitMap64([1])))
    assert commits.commit(path, look.live, [], [marked], {"operation": "DELETE"})
    look = looks.look(path)
    assert look is not None and look.newest(TIME) is None
    ours(path, AT + timedelta(hours=1))
    look = looks.look(path)
    assert look is not None and look.newest(TIME) is None, "what was taken out may have been the latest"
    ours(path, AT + timedelta(days=2))
    look = looks.look(path)
    assert look is not None and look.newest(TIME) == (AT + timedelta(days=2),)


def lake_of(config: Config, write: Any, number: int) -> list[TableName]:
    for n in range(number):
        path = folders.snapshot(stores.lake(config), "s", ("d", f"t{n}"))
        write(path, AT, AT + timedelta(microseconds=n))
        write(path, None)
        DeltaTable(path.uri(), storage_options=path.options).alter.set_table_properties(
            {"cdc.limits": json.dumps({"id": [f"{n} is lost"]})}, raise_if_not_exists=False
        )
    return [TableName("s", "d", f"t{n}") for n in range(number + 1)]


@pytest.mark.s3
@pytest.mark.parametrize(("write", "each"), [(ours, 5), (others, 7), (untold, 9)])
def test_each_snapshot_takes_a_few_requests(
    make_config: Callable[..., Config], on_s3: Any, s3: Any, write: Any, each: int
) -> None:
    config = on_s3(make_config([{"name": "s", "format": "canal", "topics": ["t"]}]))
    names = lake_of(config, write, 3)
    forgotten(config, names)
    s3.reset()
    limits = described.limits(config, names)
    assert limits == {names[3]: {}, **{name: {"id": [f"{n} is lost"]} for n, name in enumerate(names[:3])}}
    asked = [r for r in s3.reset() if "/snapshots/" in r]
    assert len(asked) <= 5 * 3 + 2, asked
    forgotten(config, names)
    s3.reset()
    found = described.overview(config, names)
    asked = [r for r in s3.reset() if "/snapshots/" in r]
    assert [(r["rows"], r["last_change"], r["columns"]) for r in found] == [
        *((3, AT + timedelta(microseconds=n), 1) for n in range(3)),
        (None, None, None),
    ]
    assert len(asked) <= each * 3 + 2, asked


def forgotten(config: Config, names: Sequence[TableName]) -> None:
    """As in a process of its own."""
    for name in names:
        handles.forget(folders.snapshot(stores.lake(config), name.source, name.name))
