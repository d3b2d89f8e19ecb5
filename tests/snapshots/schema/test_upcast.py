"""Row images from before DDL as images of today, held against the same done to one dict after the other. No Spark."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_platform.changelog.schema import Upcast, upcast_list
from cdc_platform.changelog.unify import CHANGELOG_FILE
from cdc_platform.mysql.effects import Added, Retyped
from cdc_platform.snapshots.schema import upcast
from cdc_platform.snapshots.schema.image_columns import image_columns

Image = dict[str, str | None]
_NAMES = ["id", "A", "b", "c", "old", "New"]
IMAGES = st.none() | st.dictionaries(st.sampled_from(_NAMES), st.none() | st.sampled_from(["1", "22", "x"]), max_size=5)
PLACES = st.tuples(st.integers(0, 1), st.integers(0, 2), st.integers(0, 3))
MAP = pa.map_(pa.string(), pa.string())


def order(place: tuple[int, int, int]) -> tuple[int, ...]:
    epoch, file, pos = place
    return epoch, file, pos, 0, 0, 0


def rows(changes: list[tuple[str, tuple[int, int, int], Image | None, Image | None]]) -> pa.RecordBatch:
    told = {f.name: [None] * len(changes) for f in CHANGELOG_FILE}
    told |= {"db": ["shop"] * len(changes), "table": [t for t, *_ in changes]}
    told["order_key"] = [dict(zip(carry_names(), order(p), strict=True)) for _, p, *_ in changes]
    for entry in told["order_key"]:
        entry["pos"] = Decimal(entry["pos"])
    told["after"] = [None if i is None else list(i.items()) for *_, i, _ in changes]
    told["key"] = [None if k is None else list(k.items()) for *_, k in changes]
    told["schema_version"] = ["v"] * len(changes)
    arrays = [pa.array(told[f.name], f.type) for f in CHANGELOG_FILE]
    return pa.RecordBatch.from_arrays(arrays, schema=CHANGELOG_FILE)


def carry_names() -> list[str]:
    return list(CHANGELOG_FILE.field("order_key").type.names)


@settings(deadline=None)
@given(st.lists(IMAGES, max_size=6), st.integers(0, 3), st.lists(st.sampled_from(_NAMES), unique=True))
def test_images_by_column_are_the_same_images(images: list[Any], start: int, first: list[str]) -> None:
    array = pa.array([None if i is None else list(i.items()) for i in images], MAP).slice(start)
    made = image_columns(array).maps(first).to_pylist()
    assert [i and dict(i) for i in made] == [i and dict(i) for i in array.to_pylist()]
    for image in filter(None, made):
        names = [n for n, _ in image]
        assert [n for n in names if n in first] == [n for n in first if n in names]


RENAMED = Upcast((1, 0, 0, 0, 0, 0), ("shop", "new"), names={"a": "b", "b": "A", "old": "New"})
GONE = Upcast((1, 1, 0, 0, 0, 0), None)
WIDER = Upcast(
    None,
    ("shop", "t"),
    names={"c": None},
    added={"more": Added("more", "int", "0", told=True), "a": Added("A", "int", None, told=True)},
    retyped={"b": [Retyped("decimal(9,2)", "decimal(9,1)")]},
)
SPANS = {("shop", "t"): [RENAMED, GONE, WIDER]}


def modelled(change: tuple[str, tuple[int, int, int], Image | None, Image | None]) -> Any:
    """(table, place, image, key) of today; None: gone."""
    table, place, image, key = change
    if table != "t":
        return change
    if order(place) < (1, 0, 0, 0, 0, 0):
        names = {"a": "b", "b": "A", "old": "New"}
        today = [i and {names.get(n.lower(), n): v for n, v in i.items()} for i in (image, key)]
        return "new", place, *today
    if order(place) < (1, 1, 0, 0, 0, 0):
        return None
    today = [i and {n: v for n, v in i.items() if n != "c"} for i in (image, key)]
    for i in filter(None, today):
        if i.get("b") in ("1", "22"):
            i["b"] += ".0"
    if (filled := today[0]) is not None:
        had = {n.lower() for n in filled}
        filled |= {n: v for n, v in (("more", "0"), ("A", None)) if n.lower() not in had}
    return "t", place, *today


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["t", "other"]), PLACES, IMAGES, IMAGES).filter(
            lambda c: not any({"New", "old"} <= i.keys() for i in c[2:] if i)
        ),
        min_size=1,
        max_size=8,
    )
)
def test_rows_are_carried_as_one_by_one(changes: list[Any]) -> None:
    made = [r for b in upcast.upcast_rows(rows(changes), SPANS, {}) for r in b.to_pylist()]
    found = [
        (r["table"], tuple(int(r["order_key"][n]) for n in ("epoch", "file", "pos")), *_dicts(r["after"], r["key"]))
        for r in made
    ]
    wanted = [m for c in changes if (m := modelled(c)) is not None]
    assert sorted(map(repr, map(_sorted, found))) == sorted(map(repr, map(_sorted, wanted)))
    assert {r["schema_version"] for r in made if r["table"] == "other"} <= {"v"}
    assert {r["schema_version"] for r in made if r["table"] != "other"} <= {None}


def _dicts(*images: Any) -> list[Image | None]:
    return [None if i is None else dict(i) for i in images]


def _sorted(change: tuple[Any, ...]) -> tuple[Any, ...]:
    return *change[:2], *(i if i is None else sorted(i.items()) for i in change[2:])


def test_values_that_are_refused_are_told_one_by_one() -> None:
    """Of the row before; the others of the column are as the server made them."""
    to_set = Upcast(None, ("shop", "t"), retyped={"b": [Retyped("varchar(9)", "set('a','b')")]})
    told = rows([("t", (1, 0, n), {"b": "a"}, {"b": text}) for n, text in enumerate(("b,a", "z", "b,a"))])
    batch = told.append_column(upcast.UNTOLD, pa.array([[]] * 3, pa.list_(pa.string())))
    [made] = upcast.upcast_rows(batch, {("shop", "t"): [to_set]}, {})
    assert [dict(k)["b"] for k in made.column("key").to_pylist()] == ["a,b", "z", "a,b"]
    assert made.column(upcast.UNTOLD).to_pylist() == [[], ["b"], []]


@pytest.mark.parametrize(
    ("added", "then", "is_"),
    [
        (Added("z", "float", "0.1", told=True), Retyped("float", "double"), "0.10000000149011612"),
        (Added("z", "int", "300", told=True), Retyped("int", "tinyint unsigned"), "255"),
        (Added("z", "int", None, told=True), Retyped("int", "int", filled=True), "0"),
        (Added("z", "decimal(6,3)", "1.255", told=True), Retyped("decimal(6,3)", "decimal(6,1)"), "1.3"),
        (Added("z", "datetime(3)", "2020-01-01 00:00:00.5", told=True), Retyped("datetime(3)", "varchar(30)"), None),
    ],
)
def test_what_a_new_column_was_filled_with_changes_with_its_type(added: Added, then: Retyped, is_: str | None) -> None:
    """As MariaDB 10.11 with an empty sql_mode has it."""
    carry = Upcast(None, ("shop", "t"), added={"z": added}, retyped={"z": [then]})
    [made] = upcast.upcast_rows(rows([("t", (1, 0, 1), {"b": "a"}, None)]), {("shop", "t"): [carry]}, {})
    [row] = made.column("after").to_pylist()
    assert dict(row)["z"] == (is_ or "2020-01-01 00:00:00.500")
    assert upcast_list([], carry) == [{"name": "z", "type": then.after, "key": False}]
