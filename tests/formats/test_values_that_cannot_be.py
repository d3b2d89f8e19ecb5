"""Values that can't be of their column's type are refused in every format: it is how shifted columns show."""

import base64
import json
import re

import pytest

from cdc_platform.formats import FORMATS
from cdc_platform.formats.pb import tencent_dts_pb2 as pb
from tests.formats import canal_fixtures, dts_fixtures
from tests.formats.contexts import statement
from tests.formats.json_fixtures import messages, readable

TYPES = {
    "v": "varchar(3)",
    "c": "char(2)",
    "b": "varbinary(2)",
    "f": "binary(2)",
    "n": "decimal(5,2)",
    "t": "tinyint",
    "u": "tinyint unsigned",
    "e": "enum('a','b')",
    "s": "set('a','b')",
    "h": "time",
    "y": "year",
    "k": "time(2)",
}
FITS = {"v": "漢字😀", "c": "é", "b": b"\x01\xff", "f": b"\x01", "n": "-999.99", "t": "-128", "u": "255",
        "e": "b", "s": "a,b", "h": "-838:59:59", "y": "2155", "k": "01:02:03.45"}  # fmt: skip
DOES_NOT = {"v": "abcd", "c": "漢字😀", "b": b"\x01\x02\x03", "f": b"\x01\x02\x03", "n": "1000.00", "t": "128",
            "u": "256", "e": "c", "s": "a,c", "h": "839:00:00", "y": "2156", "k": "01:02:03.456"}  # fmt: skip
NOT_BOTH = {("debezium", "h"), ("debezium", "y")}
CREATE = "CREATE TABLE t (id int PRIMARY KEY, {})".format(", ".join(f"{n} {t}" for n, t in TYPES.items()))


def canal_json(row):
    cells = {n: v.decode("latin-1") if isinstance(v, bytes) else v for n, v in row.items()}
    numbers = {"e": {"b": "2", "c": "3"}, "s": {"a,b": "3", "a,c": "5"}}
    cells |= {n: numbers[n].get(cells[n], cells[n]) for n in numbers}
    told = {
        "type": "INSERT",
        "database": "d",
        "table": "t",
        "es": 1700000000000,
        "isDdl": False,
        "sql": "",
        "pkNames": ["id"],
    }
    return {**told, "data": [cells], "old": None, "mysqlType": {"id": "int", **TYPES}, "sqlType": None}


def dataworks(row):
    six = {"t": "LONG", "u": "LONG", "y": "LONG", "b": "BYTES", "f": "BYTES", "n": "DOUBLE", "id": "LONG"}
    cells = {n: base64.b64encode(v).decode() if isinstance(v, bytes) else v for n, v in row.items()}
    cells |= {n: int(cells[n]) for n in ("t", "u", "y", "id")}
    columns = [{"name": n, "type": six.get(n, "STRING")} for n in row]
    source = {"dbType": "MySQL", "dbName": "d", "tableName": "t"}
    payload = {
        "before": None,
        "after": {"dataColumn": cells},
        "sequenceId": "5",
        "op": "INSERT",
        "timestamp": {"eventTime": 1700000000000},
    }
    return {
        "schema": {"dataColumn": columns, "primaryKey": ["id"], "source": source},
        "payload": payload,
        "version": "0.0.1",
    }


def debezium(row):
    cells = {n: base64.b64encode(v).decode() if isinstance(v, bytes) else v for n, v in row.items()}
    unscaled = int(row["n"].replace(".", ""))
    cells["n"] = base64.b64encode(unscaled.to_bytes(4, "big", signed=True)).decode()
    cells |= {n: int(cells[n]) for n in ("t", "u", "id")} | {"h": 0, "y": 2026}
    cells["k"] = 3_723_000_000 + int(row["k"].partition(".")[2].ljust(6, "0"))
    source = {"connector": "mysql", "db": "d", "table": "t", "server_id": 1, "file": "b.000001", "pos": 4, "row": 0}
    return {"op": "c", "before": None, "after": cells, "source": source}


def tdsql(row):
    def literal(name, value):
        if isinstance(value, bytes):
            return f"x'{value.hex()}'"
        return value if name in ("id", "t", "u", "n", "y") else f"'{value}'"

    told = {"logtype": "mysqlbinlog", "eventtypestr": "insert", "db": "d", "table": "t", "begintime": 5}
    return {**told, "where": [], "field": [literal(n, v) for n, v in row.items()]}


def canal(row):
    cells = canal_json(row)["data"][0]
    columns = {n: "int key" if n == "id" else re.sub(r"\(.*\)", "", TYPES[n]) for n in row}
    types = {"b": 2004, "f": 2004}
    change = {"event": "INSERT", "columns": columns, "rows": [{"after": cells}], "sql_types": types}
    return canal_fixtures.entry({"header": {"schemaName": "d"}, **change})


def tencent_dts(row):
    def cell(name, value):
        if isinstance(value, bytes):
            return {"BYTES_HEX": value.hex()}
        kinds = {"id": "INT32", "t": "INT8", "u": "UINT8", "n": "DECIMAL", "y": "INT64"}
        return {kinds[name]: value} if name in kinds else {"STRING": value, "charset": "utf8mb4"}

    # Digits of a second are the column's type's own.
    columns = ["id int key", *(f"{n} " + (t if n == "k" else re.sub(r"\(.*\)", "", t)) for n, t in TYPES.items())]
    dml = {"type": "INSERT", "columns": columns, "rows": [{"new": [cell(n, v) for n, v in row.items()]}]}
    items = [dts_fixtures.entry({"header": {"schemaName": "d"}, "dml": dml})]
    return pb.Entries(items=items).SerializeToString()


WRITERS = {
    "canal": canal,
    "canal_json": canal_json,
    "dataworks": dataworks,
    "debezium": debezium,
    "tdsql": tdsql,
    "tencent_dts": tencent_dts,
}


def decoded(name, row):
    format_ = FORMATS[name]
    options = format_.options()
    known = json.loads(
        json.dumps(format_.context.build(options, [statement("d", CREATE, binlog_pos=1, file_no=1, lineage="1")]))
    )
    value = WRITERS[name](row)
    value = value if isinstance(value, bytes) else json.dumps(value, ensure_ascii=False).encode()
    [event] = [e for e in readable(format_.decode(messages([value]), options, known)) if e["kind"] != "schema"]
    return event


@pytest.mark.parametrize("name", WRITERS)
def test_values_at_the_limits_of_their_types_are_read(name):
    event = decoded(name, {"id": "1", **FITS})
    assert event["kind"] == "row", event
    wanted = {
        n: base64.b64encode(v.ljust(2, b"\0") if n == "f" else v).decode() if isinstance(v, bytes) else v
        for n, v in FITS.items()
    }
    assert {n: event["after"][n] for n in FITS if (name, n) not in NOT_BOTH} == {
        n: v for n, v in wanted.items() if (name, n) not in NOT_BOTH
    }


@pytest.mark.parametrize("column", TYPES)
@pytest.mark.parametrize("name", WRITERS)
def test_a_value_beyond_them_is_refused_with_its_column(name, column):
    if (name, column) in NOT_BOTH:
        pytest.skip("a count that has no text")
    event = decoded(name, {"id": "1", **FITS, column: DOES_NOT[column]})
    assert event["kind"] == "error", event
    assert event["info"] == {"column": column}
    assert event["table"] == "t"
