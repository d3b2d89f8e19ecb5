"""Snapshots as frames: exact values, the version asked for, all tables at one cut, errors that name what there is."""

import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from cdc_platform.errors import NotReadable, SetupError
from cdc_platform.reading import Snapshots, TableName
from tests.changelog.feed import Feed
from tests.reading.lake import AT, BIG, ids, make
from tests.snapshots.cuts.test_publish import ONE, TWO, opened, pay
from tests.snapshots.test_ddl import ddl, versions

ORDERS = "shop/shop.orders"


@pytest.fixture(scope="module")
def snapshots(tmp_path_factory: pytest.TempPathFactory) -> Snapshots:
    return Snapshots(str(make(tmp_path_factory.mktemp("reading") / "lake")))


def test_no_spark_is_imported(snapshots: Snapshots) -> None:
    code = (
        "import sys; from cdc_platform.reading import Snapshots; "
        f"Snapshots({snapshots.lake!r}).pandas({ORDERS!r}); "
        "sys.exit('pyspark' in sys.modules or 'dagster' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_arrow_holds_the_sources_columns_alone(snapshots: Snapshots) -> None:
    found = snapshots.arrow(ORDERS)
    assert found.schema == pa.schema(
        [("id", pa.int64()), ("amount", pa.decimal128(12, 2)), ("parent", pa.int64()), ('odd "name`', pa.string())]
    )
    assert sorted(found.to_pylist(), key=lambda r: r["id"]) == [
        {"id": 1, "amount": Decimal("1.10"), "parent": None, 'odd "name`': "x"},
        {"id": 2, "amount": None, "parent": BIG, 'odd "name`': "x"},
    ]
    assert snapshots.arrow(ORDERS, bookkeeping=True)["_cdc_source_time"].to_pylist() == [AT, AT]


def test_columns_and_rows_are_chosen(snapshots: Snapshots) -> None:
    found = snapshots.arrow(ORDERS, columns=['odd "name`', "id"], where="parent IS NULL")
    assert found.to_pylist() == [{'odd "name`': "x", "id": 1}]
    assert ids(snapshots.arrow(ORDERS, columns="id")) == [1, 2]
    assert ids(snapshots.batches(ORDERS, where="id > 1")) == [2]


def test_an_older_version(snapshots: Snapshots) -> None:
    assert ids(snapshots.arrow(ORDERS, version=0)) == [1]
    assert snapshots.find(ORDERS).version == 1


@pytest.mark.parametrize("backend", ["pyarrow", "numpy_nullable"])
def test_pandas_keeps_integers_beside_nulls(snapshots: Snapshots, backend: Any) -> None:
    found = snapshots.pandas(ORDERS, dtype_backend=backend).sort_values("id")
    assert list(found["parent"].isna()) == [True, False]
    assert int(found["parent"].iloc[1]) == BIG
    assert found["amount"].iloc[0] == Decimal("1.10")
    assert pd.api.types.is_integer_dtype(found["parent"].dtype)


@pytest.mark.parametrize("kind", ["arrow", "pandas", "polars", "duckdb"])
def test_each_kind_of_frame(snapshots: Snapshots, kind: Any) -> None:
    if kind in ("polars", "duckdb"):
        pytest.importorskip(kind)
    found = snapshots.frames([ORDERS, "shop/shop.items"], kind)
    assert {name: ids(frame) for name, frame in found.items()} == {ORDERS: [1, 2], "shop/shop.items": [1, 2, 3]}


def test_duckdb_joins_tables_by_name(snapshots: Snapshots) -> None:
    pytest.importorskip("duckdb")
    connection = snapshots.connect({"o": ORDERS, "i": "shop/shop.items"})
    assert connection.sql('SELECT count(*) FROM o JOIN i ON i."order" = o.id').fetchall() == [(3,)]


def test_a_missing_package_is_told(snapshots: Snapshots, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(SetupError, match="pip install polars"):
        snapshots.polars(ORDERS)


def test_which_tables_there_are(snapshots: Snapshots) -> None:
    assert snapshots.tables("shop") == [TableName("shop", "shop", t) for t in ("items", "orders")]
    assert {n.source for n in snapshots.tables()} == {"shop", "other"}


def test_all_tables_at_one_cut(snapshots: Snapshots) -> None:
    newest, first = snapshots.at_cut("shop"), snapshots.at_cut("shop", 1)
    assert (newest.cut.number, newest.cut.kind, newest.cut.source_time) == (2, "transaction", AT)
    assert [str(t) for t in newest.tables()] == ["shop/shop.orders", "shop/shop.items"]
    assert [ids(f) for f in newest.frames(["shop.orders", "shop/shop.items"]).values()] == [[1, 2], [1, 2]]
    assert [ids(f) for f in first.frames(["shop/orders", "shop/shop/items"]).values()] == [[1], [1]]
    assert ids(snapshots.at_cut("shop", kind="any").arrow("shop.items")) == [1, 2, 3]
    assert [c.number for c in snapshots.cuts("shop")] == [3, 2, 1]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda s: s.arrow("shop/shop.order"), "no such table in this lake; valid: shop/shop.orders"),
        (lambda s: s.arrow("elsewhere"), "no such table in this lake; valid: other/a.b.c"),
        (lambda s: s.arrow("other/a.b.c"), r"several tables; give its path; valid: other/a/b\.c, other/a\.b/c"),
        (lambda s: s.arrow(ORDERS, version=9), "has no version 9; valid: up to 1"),
        (lambda s: s.arrow(ORDERS, columns=["nope"]), "has no column 'nope'; valid: id, amount, parent"),
        (lambda s: s.arrow(ORDERS, where="nope = 1"), "No field named nope"),
        (lambda s: s.arrow("shop/shop.halted"), r"is stopped \(ddl: stop, DROP COLUMN seen\)"),
        (lambda s: s.arrow("shop/shop.gone"), r"is dropped \(DROP TABLE\)"),
        (lambda s: Snapshots(s.lake, only_live=False).arrow("shop/shop.gone"), "no Delta table at"),
        (lambda s: s.at_cut("shop", 9), "has no cut 9; valid: 3, 2, 1"),
        (lambda s: s.at_cut("other"), "other: has no cut yet"),
        (lambda s: s.at_cut("nobody"), "no such source in this lake; valid: other, shop"),
        (lambda s: s.at_cut("shop").arrow("shop.halted"), "no such table in cut 2 of shop"),
        (lambda s: s.at_cut("shop").arrow("shop.orders", version=0), "give no other"),
        (lambda s: Snapshots(s.lake + "x").arrow(ORDERS), "no such table in this lake; valid: none yet"),
    ],
)
def test_what_cant_be_read_is_told_with_what_can(snapshots: Snapshots, call: Any, told: str) -> None:
    with pytest.raises(NotReadable, match=told):
        call(snapshots)


def test_a_cut_that_cant_tell_transactions_is_asked_for_by_name(tmp_path: Path) -> None:
    from tests.reading.lake import cut, items, state, write

    write(tmp_path, "s", "shop", "items", items((1, 1)))
    state(tmp_path, "s", "shop", "items")
    cut(tmp_path, "s", 1, "position", items=0)
    snapshots = Snapshots(str(tmp_path))
    with pytest.raises(NotReadable, match=r"1, is of kind position: it tells no transactions; valid: kind='any'"):
        snapshots.at_cut("s")
    assert ids(snapshots.at_cut("s", kind="any").arrow("shop.items")) == [1]


def test_the_last_rows_of_a_stopped_table(snapshots: Snapshots) -> None:
    assert ids(Snapshots(snapshots.lake, only_live=False).arrow("shop/shop.halted")) == [7]


@pytest.mark.spark
@pytest.mark.thorough
def test_a_lake_of_the_platform_with_deletion_vectors_and_renamed_columns(spark: Any, make_config: Any) -> None:
    """Every reader sees what Spark sees, at the newest version and at each cut."""
    sources = [{"name": "shop", "format": "canal_json"}, {"name": "bank", "format": "canal"}]
    config = make_config([{**s, "topics": ["t"]} for s in sources])
    feed, bank = Feed(spark, config, "shop"), Feed(spark, config, "bank")
    wide = versions("id bigint", "a varchar(200)", "b varchar(9)", name="wide")
    noise = Random(1)
    rows = [{"id": str(n), "a": noise.randbytes(100).hex(), "b": "x"} for n in range(8000)]  # over 256 KB
    feed.say(wide.stated(), *(wide.insert((1, 1000 + n), r) for n, r in enumerate(rows)))
    feed.catch_up()
    feed.say(wide.delete((1, 20010), rows[5]), ddl("ALTER TABLE wide RENAME COLUMN b TO c", 20020))
    feed.catch_up()
    for events in (opened(), pay(10, (60, 70))):
        bank.say(*events)
        bank.catch_up()
    path = Path(feed.target("shop", "wide").snapshot.uri())
    assert list(path.glob("deletion_vector_*.bin")), "the case has no deletion vector"

    snapshots = Snapshots(config.lake)
    by_spark = spark.read.format("delta").load(str(path)).select("id", "a", "c")
    expected = sorted(map(tuple, by_spark.collect()))
    assert len(expected) == 7999
    found = snapshots.arrow("shop/shop.wide")
    assert found.column_names == ["id", "a", "c"]
    assert sorted(tuple(r.values()) for r in found.to_pylist()) == expected
    assert sorted(map(tuple, snapshots.spark("shop/shop.wide", spark).collect())) == expected
    assert len(snapshots.pandas("shop/shop.wide", columns=["c"])) == 7999
    assert snapshots.spark("shop/shop.wide", spark, version=1).columns == ["id", "a", "b"]

    sums = []
    for cut in snapshots.cuts("bank"):
        at = snapshots.at_cut("bank", cut.number)
        values = [at.arrow(f"{t.db}.{t.name}")["amount"].to_pylist() for t in (ONE, TWO)]
        assert values == [[r.amount for r in at.spark(f"{t.db}.{t.name}", spark).collect()] for t in (ONE, TWO)]
        sums.append(sum(map(sum, values)))
    assert len(sums) > 1
    assert set(sums) == {100}
