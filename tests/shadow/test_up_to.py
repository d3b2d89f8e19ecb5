"""What the comparison's point leaves open is judged at the seam, before one feed takes the other's place. No Spark."""

from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from cdc_platform.lake import stores
from cdc_platform.landing.ended import ended
from cdc_platform.shadow import cutover, ready
from cdc_platform.shadow.cutover import Cutover
from cdc_platform.shadow.errors import ShadowRefused
from cdc_platform.shadow.point import Bound, Common
from cdc_platform.shadow.seam import Seam
from cdc_platform.tables import CHANGELOG, TABLE_STATE, TOMBSTONES_PATH
from tests.rows import add
from tests.shadow.test_point import order
from tests.shadow.test_seam import change, come, feeds

AT = Seam(("a", 0), ("b", 0), 7, "aaaa:3")
T = ("d", "t")


@pytest.fixture
def config(make_config):
    found = feeds(make_config)
    for source in ("a", "b"):
        state(found, source)
        seen = {"source": source, "topic": source, "partition": 0, "offset": 6, "db": "d", "table": "t", "op": "insert"}
        add(found.lake, CHANGELOG, {**seen, "order_key": order(30)})
    return found


def state(config, source: str, **more: Any) -> None:
    row = {"source": source, "batch": 0, "db": "d", "table": "t", "state": "live", "rebuild": 0, "partial": 0}
    add(config.lake, TABLE_STATE, {**row, **more})


def stones(config, source: str, *rows: tuple[str, int]) -> None:
    """Deletes of the table: their scope and place."""
    place = CHANGELOG.arrow().field("order_key").type
    schema = pa.schema({"_k0": pa.string(), "scope": pa.string(), "_cdc_order": place})
    told = [{"_k0": "1" if scope == "row" else None, "scope": scope, "_cdc_order": order(at)} for scope, at in rows]
    path = TOMBSTONES_PATH.of(stores.lake(config), source, T)
    write_deltalake(path.uri(), pa.Table.from_pylist(told, schema), mode="append")


def check(config, monkeypatch, unsettled: int) -> None:
    """The comparison at the seam finds so many rows of which `b` has something newer."""
    monkeypatch.setattr(cutover.ready, "check_unsettled", lambda *_: {T: {"unsettled": unsettled}})
    found = Cutover(config, config.shadow_of("a"), lambda _: None)
    found._check_up_to(cast("Any", None), {T: {"unsettled": 3}}, AT)


def test_whole_rows_and_deletes_tell_all_of_them(config, monkeypatch):
    stones(config, "b", ("row", 40), ("expired", 30))
    stones(config, "a", ("expired", 90))
    state(config, "a", partial=1)
    check(config, monkeypatch, 2)


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (lambda c: state(c, "b", batch=1, partial=1), "b tells parts of rows"),
        (lambda c: stones(c, "b", ("expired", 31)), "b has forgotten which were deleted since"),
    ],
)
def test_parts_of_rows_and_forgotten_deletes_do_not(config, monkeypatch, told, why):
    told(config)
    with pytest.raises(ShadowRefused, match=f"rows of d.t aren't the same behind aaaa:3, and {why}; .*--exchange"):
        check(config, monkeypatch, 2)
    check(config, monkeypatch, 0)


def test_what_the_point_leaves_open_is_compared_at_the_seam(make_config, monkeypatch):
    """`a` lost the third of five transactions, and hasn't the last yet; the comparison's point is the second."""
    config, asked = feeds(make_config), []
    for number in (1, 2, 4):
        change(config, "a", number, number)
    for number in range(1, 6):
        change(config, "b", number + 3, number)
        seen = {"source": "b", "topic": "b", "partition": 0, "offset": number + 3, "db": "d", "table": "t"}
        add(config.lake, CHANGELOG, {**seen, "op": "insert", "order_key": order(10 * number)})
    come(config, 4)
    row = {"db": "d", "schema": None, "table": "t", "state": "behind", "reason": None, "not_compared": []}
    row |= {"only_of": 0, "only_by": 0, "differing": 0, "unsettled": 2}

    def compared(*_: Any, tables: list[str], anew: bool, at: Common) -> dict[str, Any]:
        asked.append((tables, anew, at.gtid, at.bounds))
        return {"rows": [{**row, "state": "different", "only_by": 1, "unsettled": 1}, {**row, "table": "other"}]}

    monkeypatch.setattr(ready, "bring", lambda *_: {T: row, ("d", "other"): {**row, "unsettled": 0}})
    monkeypatch.setattr(ready.run, "compare", compared)
    begins = SimpleNamespace(topic="b", partition=0, begin=0)
    monkeypatch.setattr(cutover.positions, "in_kafka", lambda *_: [begins])
    with pytest.raises(ShadowRefused, match=r"1 row of d\.t differs, and b has all that a has, up to aaaa:4; what"):
        Cutover(config, config.shadow_of("a"), lambda _: None).do(cast("Any", None))
    assert asked == [(["d.t"], True, "aaaa:4", (Bound(None), Bound((0, 1, 40, 0, 0, 0), last=True)))]
    assert ended(config, config.source("a")) == frozenset()
