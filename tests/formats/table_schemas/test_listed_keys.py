"""Keys in `tableChanges` that the statements beside them don't bear out tell no rows apart."""

import json

import pytest

from cdc_platform.formats.debezium import FORMAT, DebeziumOptions
from tests.formats.contexts import decode_with_context
from tests.formats.json_fixtures import messages, readable

UNIQUE = "CREATE TABLE t (a INT NOT NULL, b INT, UNIQUE KEY u (a))"
PRIMARY = "CREATE TABLE t (a INT NOT NULL, b INT, PRIMARY KEY (a), KEY u (b))"
SOURCE = {"connector": "mysql", "server_id": 1, "file": "b.000001", "db": "d", "ts_ms": 1_600_000_000_000}


def change(table="t", key=("a",), *, kind="ALTER", before=None, nullable=False):
    """An entry of `tableChanges`; key None: the table is gone."""
    columns = [{"name": n, "typeName": "INT", "optional": o} for n, o in (("a", nullable), ("b", True))]
    ids = [f'"d"."{name}"' for name in (before, table) if name]
    told = {"primaryKeyColumnNames": key, "columns": columns}
    return {"type": kind, "id": ",".join(ids), "table": None if key is None else told}


CREATED = change(kind="CREATE")
CASES = {
    "its index is dropped": ([(UNIQUE, [CREATED]), ("DROP INDEX u ON t", [change()])], []),
    "Debezium lists nothing": ([(UNIQUE, [CREATED]), ("DROP INDEX u ON t", [])], []),
    "it stays so": (
        [(UNIQUE, [CREATED]), ("ALTER TABLE t DROP KEY u", [change()]), ("ALTER TABLE t COMMENT 'c'", [change()])],
        [],
    ),
    "an ordinary index of a primary key's table": ([(PRIMARY, [CREATED]), ("DROP INDEX u ON t", [change()])], ["a"]),
    "a primary key by its name": ([(PRIMARY, [CREATED]), ("DROP INDEX `PRIMARY` ON t", [change()])], []),
    "whether it is primary isn't known": ([("ALTER TABLE t DROP KEY u", [change()])], []),
    "a new primary key": (
        [(UNIQUE, [CREATED]), ("DROP INDEX u ON t", []), ("ALTER TABLE t ADD PRIMARY KEY (b)", [change(key=["b"])])],
        ["b"],
    ),
    "a new table": (
        [(UNIQUE, [CREATED]), ("DROP INDEX u ON t", []), ("DROP TABLE t", [change(key=None)]), (UNIQUE, [CREATED])],
        ["a"],
    ),
    "another table": (
        [(UNIQUE, [CREATED]), ("CREATE TABLE o LIKE t", [change("o", kind="CREATE")]), ("DROP INDEX u ON o", [])],
        ["a"],
    ),
    "its column takes NULL": ([(UNIQUE, [CREATED]), ("ALTER TABLE t MODIFY a INT", [change(nullable=True)])], []),
    "under another name": (
        [
            (UNIQUE.replace(" t ", " o "), [change("o", kind="CREATE")]),
            ("DROP INDEX u ON o", []),
            ("RENAME TABLE o TO t", [change(before="o")]),
        ],
        [],
    ),
    "a primary key under another name": (
        [
            (PRIMARY.replace(" t ", " o "), [change("o", kind="CREATE")]),
            *[("RENAME TABLE o TO t", [change(before="o")])] * 2,
            ("DROP INDEX u ON t", []),
        ],
        ["a"],
    ),
    "a statement lists no tables": ([(UNIQUE, [CREATED]), ("DROP INDEX u ON t", None)], []),
}


@pytest.mark.parametrize("case", CASES)
def test_rows_are_told_apart_by_a_key_that_is_sure_to_be_there(case):
    statements, key = CASES[case]
    told = [
        {"source": {**SOURCE, "pos": 10 * i}, "databaseName": "d", "ddl": sql, "tableChanges": changes}
        for i, (sql, changes) in enumerate(statements)
    ]
    row = {"op": "c", "before": None, "after": {"a": 1, "b": 2}, "source": {**SOURCE, "pos": 999, "table": "t"}}
    feed = [*(json.dumps(m).encode() for m in told), ("t", b'{"a": 1}', json.dumps(row).encode())]
    events = readable(decode_with_context(FORMAT, messages(feed), DebeziumOptions()))
    [found] = [e for e in events if e["kind"] == "row"]
    assert (found.get("key", {})) == {n: {"a": "1", "b": "2"}[n] for n in key}
