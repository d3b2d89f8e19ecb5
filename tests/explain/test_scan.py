"""Changes of a key in changelog files: which files and columns are read for it, and how texts compare."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc_platform.changelog.file_stats import TableStatistics
from cdc_platform.changelog.unify import CHANGELOG_FILE
from cdc_platform.config import Tables
from cdc_platform.explain.scan import Alikes, Sought, columns_needed, find
from cdc_platform.formats.events import columns_json
from cdc_platform.lake.data_files import Output, Sink, note_of
from cdc_platform.lake.store import File
from cdc_platform.snapshots.reduce.one_key import steps
from cdc_platform.tables import CHANGELOG
from tests.lakes import store_at

NAME = ("shop", "t")
COLUMNS = columns_json([{"name": n, "type": t, "key": n == "id"} for n, t in (("id", "int"), ("a", "varchar(9)"))])


def change(op: str, key: str | None, after: dict[str, Any] | None, offset: int, **more: Any) -> dict[str, Any]:
    order = {"epoch": 0, "file": 1, "pos": offset, "event": 0, "row": 0, "landed": offset}
    return {
        **{"topic": "t", "partition": 0, "offset": offset, "entry_index": 0, "row_index": 0, "schema_version": "v"},
        **{"db": "shop", "schema": None, "table": "t", "op": op, "order_key": order},
        **{"key": None if key is None else [("id", key)], "after": after and list(after.items()), **more},
    }


def written(folder: Path, *changes: dict[str, Any], noted: bool = True) -> File:
    store = store_at(folder)
    rows = pa.Table.from_pylist(list(changes), CHANGELOG_FILE).combine_chunks().to_batches()[0]
    out = Output(Sink(store, CHANGELOG_FILE, CHANGELOG.stats, ()))
    out.write(rows)
    if noted:
        touched = TableStatistics(Tables(), {NAME: COLUMNS})
        touched.add(rows)
        out.note = touched.to_json()
    done = out.close()
    assert done is not None
    return File(store, done.path)


def sought(text: str, alike: Alikes = Alikes(), column: str = "id", *, keyed: bool = True) -> Sought:  # noqa: B008
    return Sought(frozenset({NAME}), ({column: text},), alike, keyed=keyed)


def offsets(files: list[File], what: Sought) -> list[int]:
    return sorted(find(files, what, CHANGELOG_FILE).column("offset").to_pylist())


WHOLE = [change("insert", str(i), {"id": str(i), "a": "x"}, i) for i in (3, 5, 9)]


@pytest.mark.parametrize("noted", [True, False])
def test_a_key_is_found_with_and_without_notes(tmp_path: Path, noted: bool):
    file = written(tmp_path, *WHOLE, change("delete", "5", None, 10), noted=noted)
    other = written(tmp_path, change("insert", "5", {"id": "5", "a": "x"}, 11, table="other"), noted=noted)
    assert offsets([file, other], sought("5")) == [5, 10]
    assert offsets([file, other], sought("4")) == []
    assert find([file], sought("9"), CHANGELOG_FILE).to_pylist(maps_as_pydicts="strict")[0]["after"] == {
        "id": "9",
        "a": "x",
    }


def test_what_a_file_notes_spares_reading_it(tmp_path: Path):
    plain, moves = (
        written(tmp_path, *WHOLE),
        written(tmp_path, *WHOLE, change("update", "3", {"id": "7", "a": "x"}, 12)),
    )
    assert columns_needed(note_of(plain), sought("5")) == ("key",)
    assert columns_needed(note_of(plain), sought("10")) == (), "no key of the file is as large"
    assert "after" in columns_needed(note_of(moves), sought("10"))
    assert "after" in columns_needed(note_of(plain), sought("x", column="a", keyed=False))
    assert columns_needed(note_of(plain), Sought(frozenset({("shop", "u")}), ({"id": "5"},), Alikes())) == ()


def test_rows_that_move_here_and_truncates_count(tmp_path: Path):
    file = written(
        tmp_path, *WHOLE, change("update", "3", {"id": "7", "a": "x"}, 12), change("truncate", None, None, 13)
    )
    assert offsets([file], sought("7")) == [12, 13]


def test_where_no_key_is_told_the_images_tell_it(tmp_path: Path):
    file = written(
        tmp_path, change("insert", None, {"id": "7", "a": "x"}, 1), change("insert", None, {"id": "8", "a": "7"}, 2)
    )
    assert offsets([file], sought("7")) == [1]


def test_texts_that_are_one_value(tmp_path: Path):
    file = written(
        tmp_path, *(change("insert", k, {"id": k}, i) for i, k in enumerate(("7", "7.0", "7.00", "70", "7.01")))
    )
    assert offsets([file], sought("7.0", Alikes({"id": "decimal"}))) == [0, 1, 2]
    assert offsets([file], sought("7.0")) == [1]
    zeros = written(
        tmp_path, *(change("insert", k, {"id": k}, i) for i, k in enumerate(("0", "-0.0", "0e+0", "10", "1e+20")))
    )
    assert offsets([zeros], sought("-0", Alikes({"id": "float"}))) == [0, 1, 2]
    names = written(tmp_path, *(change("insert", k, {"id": k}, i) for i, k in enumerate(("Ä", "ä", "a ", "a"))))
    assert offsets([names], sought("ä", Alikes(collation="UTF8_LCASE"))) == [0, 1]
    assert offsets([names], sought("A", Alikes(collation="UNICODE_CI_AI_RTRIM"))) == [0, 1, 2, 3]


MIXED = Alikes({"at": "datetime", "n": "decimal", "code": "varchar"})
"""Of a key of a time, a number and a text."""


def test_each_column_of_a_key_compares_by_its_own_type(tmp_path: Path):
    """Neither the zeros nor the Z of a text are those of a number or a time beside it."""
    keys = (
        {"at": "2026-01-01 00:00:00", "code": "JAZZ"},
        {"at": "2026-01-01 00:00:00.000Z", "code": "JAZZ"},
        {"at": "2026-01-01 00:00:00", "code": "JA"},
        {"at": "2026-01-01 00:00:00", "code": "1.10"},
        {"at": "2026-01-01 00:00:00", "code": "1.1"},
    )
    file = written(tmp_path, *(change("insert", None, key, i) for i, key in enumerate(keys)))
    of = frozenset({NAME})
    assert offsets([file], Sought(of, (keys[0],), MIXED)) == [0, 1]
    assert offsets([file], Sought(of, (keys[2],), MIXED)) == [2]
    assert offsets([file], Sought(of, (keys[3],), MIXED)) == [3]
    assert [MIXED.one("N", text) for text in ("7.00", "7", "70", "7Z")] == ["7", "7", "70", "7Z"]


def test_a_key_may_have_a_spelling_outside_of_what_a_file_notes():
    note = [{"schema": None, "db": "shop", "table": "t", "plain": {"keys": ["id"], "keys_range": ["7.00", "9.00"]}}]
    assert columns_needed(note, sought("7.0")) == ()
    assert columns_needed(note, sought("7.0", Alikes({"id": "decimal"}))) == ("key",)


KEYS = st.fixed_dictionaries({"a": st.sampled_from("12"), "b": st.sampled_from("12")})
"""Of a table with a key of two columns."""


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(KEYS, KEYS, st.booleans(), st.booleans()), min_size=1, max_size=6), KEYS)
def test_what_leads_to_a_key_is_found_whatever_its_images_tell(tmp_path_factory, moves, key):
    """With binlog_row_image MINIMAL a row after tells what has changed alone."""

    def moved(i: int, old: dict[str, str], new: dict[str, str], keyed: bool, minimal: bool) -> dict[str, Any]:
        after = {n: text for n, text in new.items() if not minimal or text != old[n]} | {"v": str(i)}
        own = {"key": list(old.items()) if keyed else None, "before": list(old.items())}
        return {**change("update", None, after, i), **own}

    changes = [moved(i, *move) for i, move in enumerate(moves)]
    told = [{**c, **{n: c[n] and dict(c[n]) for n in ("key", "before", "after")}} for c in changes]
    touching = [c["offset"] for c in told if any(s.key == key for s in steps(c, ["a", "b"], ["a", "b", "v"]))]
    file = written(tmp_path_factory.mktemp("minimal"), *changes)
    assert offsets([file], Sought(frozenset({NAME}), (key,), Alikes())) == touching


def test_a_row_without_a_key_is_found_by_what_its_images_come_to(tmp_path: Path):
    """The row before is whole, the row after tells what has changed: NULL, where it says so."""
    before = [("id", "1"), ("a", "x")]
    changes = [
        {**change("update", None, {"a": "y"}, 0), "before": before},
        {**change("update", None, {"a": None}, 1), "before": before},
        {**change("update", None, {"id": "2"}, 2), "before": before},
    ]
    file = written(tmp_path, *changes)

    def found(**cells: str | None) -> list[int]:
        return offsets([file], Sought(frozenset({NAME}), (cells,), Alikes(), keyed=False))

    assert found(id="1", a="x") == [0, 1, 2]
    assert (found(id="1", a="y"), found(id="1", a=None), found(id="2", a="x")) == ([0], [1], [2])
    assert found(id="2", a="y") == []
