"""Rows that are unlike at the seam, of which the other feed has something newer: whether that tells all of them."""

from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from cdc_platform.lake import stores
from cdc_platform.shadow import cutover
from cdc_platform.shadow.cutover import Cutover
from cdc_platform.shadow.errors import ShadowRefused
from cdc_platform.shadow.seam import Seam
from cdc_platform.tables import CHANGELOG, TABLE_STATE, TOMBSTONES_PATH
from tests.rows import add
from tests.shadow.test_point import order
from tests.shadow.test_seam import feeds

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
