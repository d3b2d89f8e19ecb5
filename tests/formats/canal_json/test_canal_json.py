"""FlatMessages → EVENT rows."""

import base64
import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from cdc_platform.formats.canal_json import FORMAT, CanalJsonOptions, decode
from tests.formats.json_fixtures import messages, readable
from tests.properties import examples

LABELS = ["a", "it's", "x,y", "back\\slash", "", "Ünïcode", "line\nfeed"]
TYPES = {
    "id": "bigint(20)",
    "d": "decimal(30,6)",
    "t": "varchar(99)",
    "b": "varbinary(99)",
    "e": "enum('a','it''s','x,y','back\\\\slash','','Ünïcode','line\\nfeed')",
    "s": "set('p','q','r')",
}
VALUES = {  # column → strategy of (canal's text, canonical text)
    "d": st.decimals(-(10**20), 10**20, places=6).map(lambda v: (f"{v:f}", f"{v:f}")),
    "t": st.text(st.characters(exclude_categories=["Cs"]), max_size=20).map(lambda v: (v, v)),
    "b": st.binary(max_size=20).map(lambda v: (v.decode("latin-1"), base64.b64encode(v).decode())),
    "e": st.integers(1, len(LABELS)).map(lambda v: (str(v), LABELS[v - 1])),
    "s": st.integers(0, 7).map(lambda v: (str(v), ",".join(x for i, x in enumerate("pqr") if v >> i & 1))),
}
ROWS = st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()})


def image(key, row, which):
    return {"id": str(key), **{name: v and v[which] for name, v in row.items()}}


def flat(kind, data, old=None):
    message = {"type": kind, "database": "d", "table": "t", "pkNames": ["id"], "mysqlType": TYPES, "sql": ""}
    return json.dumps({**message, "data": data, "old": old}, ensure_ascii=False).encode()


@examples(150)
@given(changes=st.lists(st.tuples(ROWS, ROWS), min_size=1, max_size=4))
def test_both_images_of_an_update_come_back(changes):
    changed, old = set(), []
    for before, after in changes:  # canal never clears its set of changed columns between the rows
        changed |= {name for name in after if before[name] != after[name]}
        old.append({name: text for name, text in image(0, before, 0).items() if name in changed})
    data = [image(key, after, 0) for key, (_, after) in enumerate(changes)]
    rows = [
        e for e in readable(decode(messages([flat("UPDATE", data, old)]), CanalJsonOptions())) if e["kind"] == "row"
    ]
    assert [r["before"] for r in rows] == [image(key, before, 1) for key, (before, _) in enumerate(changes)]
    assert [r["after"] for r in rows] == [image(key, after, 1) for key, (_, after) in enumerate(changes)]
    assert [r["key"] for r in rows] == [{"id": str(key)} for key in range(len(changes))]


@examples(50)
@given(rows=st.lists(ROWS, min_size=1, max_size=5), bad=st.integers(0, 4))
def test_a_bad_row_takes_no_other_with_it(rows, bad):
    data = [image(key, row, 0) for key, row in enumerate(rows)]
    data[bad % len(rows)]["e"] = "99"
    events = readable(decode(messages([flat("INSERT", data), flat("INSERT", data[:1])]), CanalJsonOptions()))
    errors = [(e["offset"], e["row_index"]) for e in events if e["kind"] == "error"]
    assert errors == [(0, bad % len(rows)), *([(1, 0)] if bad % len(rows) == 0 else [])]
    good = [e["after"] for e in events if e["kind"] == "row" and e["offset"] == 0]
    assert good == [image(key, row, 1) for key, row in enumerate(rows) if key != bad % len(rows)]


def test_many_lists_of_columns_and_large_batches_keep_the_order():
    values = []
    for i in range(3000):
        data = [{"id": str(i), f"c{i % 50}": "1"}, {"id": str(-i - 1)}]
        values.append(flat("INSERT", data) if i % 7 else b'{"type":"NOSUCH"}')
    events = decode(messages(values), CanalJsonOptions())
    rows = [(e["offset"], e["row_index"]) for e in events.to_pylist() if e["kind"] != "schema"]
    assert rows == [(i, r) for i in range(3000) for r in ((0, 1) if i % 7 else (0,))]
    assert sum(k == "schema" for k in events.column("kind").to_pylist()) == 51


def test_very_many_columns_take_linear_time():
    """Names that match in no spelling, keys, doubled names: none may be looked up one by one."""
    names = [f"c{i}" for i in range(20_000)]
    message = {"database": "d", "table": "t", "type": "UPDATE", "pkNames": names, "data": [dict.fromkeys(names, "1")]}
    odd = {**message, "mysqlType": {f"X{n}": "int" for n in names}, "old": [{f"y{n}": "2" for n in names}]}
    twice = json.dumps(odd).replace('"c19999": "1"', '"c19999": "1", "c19999": "1"')
    started = time.monotonic()
    events = readable(decode(messages([json.dumps(odd).encode(), twice.encode()]), CanalJsonOptions()))
    assert time.monotonic() - started < 15
    assert [e["kind"] for e in events] == ["row", "error"]
    assert (len(events[0]["before"]), len(events[0]["key"])) == (40_000, 20_000)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"time_zone": "Mars/Base"}, "unknown time zone 'Mars/Base'"),
        ({"columns": {"d.t": {"c": "hologram"}}}, "d.t.c: unknown MySQL type 'hologram'"),
        ({"binary": "utf-7"}, "latin-1"),
        ({"labels": "both"}, "number"),
    ],
)
def test_bad_options_say_what_would_do(options, told):
    with pytest.raises(ValidationError, match=told):
        FORMAT.options(**options)


def test_columns_that_differ_by_case_only_are_refused_alone():
    odd = {"type": "INSERT", "database": "d", "table": "t", "data": [{"id": "1", "v": "a", "V": "b"}], "sql": ""}
    odd |= {"mysqlType": {"id": "int", "v": "text", "V": "text"}, "pkNames": ["id"]}
    good = flat("INSERT", [image(2, dict.fromkeys(VALUES), 0)])
    found = readable(decode(messages([json.dumps(odd).encode(), good]), CanalJsonOptions()))
    assert [e["kind"] for e in found if e["kind"] != "schema"] == ["error", "row"]
    [reason] = [e["reason"] for e in found if e["kind"] == "error"]
    assert "one name but for its case" in reason
