"""By the names of their columns, and the types and values of these."""

from collections.abc import Iterator

from tests.reading.source_tables import Table
from tests.reading.written.case import PLAIN, case


@case("40 columns, statistics of the first 32")
def wide(t: Table) -> Iterator[None]:
    t.has({"id": "int", **{f"c{i}": "int" for i in range(40)}})
    t.insert(*({"id": str(i), **{f"c{n}": None if n == i else str(n * i) for n in range(40)}} for i in range(5)))
    yield
    t.update("2", c39="5")
    yield


_ODD = (
    "a b",
    "c,;{}()=",
    "e.f",
    'g"h',
    "i'j",
    "k`l",
    "m\\n",
    "é√🙂",
    "p%20q%",
    "r/s",
    "t#u?",
    "SELECT",
    "_v",
    "w:x&y<z>",
)


@case("names of columns with all sorts of characters", mapped=True)
def odd_columns(t: Table) -> Iterator[None]:
    t.has({"id": "int", **dict.fromkeys(_ODD, "varchar(9)")})
    t.insert(*({"id": str(i), **{n: f"{n[:3]}{i}" for n in _ODD}} for i in range(4)))
    yield
    t.update("1", **{"e.f": None, "p%20q%": "new"})
    t.delete("2")
    yield


@case("the same without those that need column mapping", by_spark=True)
def odd_columns_unmapped(t: Table) -> Iterator[None]:
    odd = [n for n in _ODD if not set(n) & set(" ,;{}()\n\t=")]
    t.has({"id": "int", **dict.fromkeys(odd, "varchar(9)")})
    t.insert(*({"id": str(i), **{n: f"{n[:3]}{i}" for n in odd}} for i in range(4)))
    yield
    t.update("1", **{"e.f": None, "p%20q%": "new"})
    t.delete("2")
    yield


@case("texts: long ones, empty ones, those that end with the last of all letters")
def texts(t: Table) -> Iterator[None]:
    t.has({"id": "varchar(99)", "v": "text", "w": "text"})
    last = "\U0010ffff"
    keys = [
        "",
        "é" * 40,
        "🙂" * 40,
        "a" * 32,
        "a" * 33,
        "a" * 32 + last * 2 + "z",
        last * 34,
        "\x00\x01",
        "\ud7ff\ue000",
    ]
    t.insert(*({"id": k, "v": k[::-1], "w": k * 99} for k in keys))
    yield
    t.update("a" * 33, v=None)
    t.delete("é" * 40)
    yield


@case("whole numbers of all widths")
def integers(t: Table) -> Iterator[None]:
    bits = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
    columns = {f"{n}{u}": f"{n}{u}" for n in bits for u in ("", " unsigned")}
    t.has({"id": "bigint unsigned", **{n.replace(" ", "_"): k for n, k in columns.items()}})
    low = {n: str(-(2 ** (b - 1))) for n, b in bits.items()} | {f"{n}_unsigned": "0" for n in bits}
    high = {n: str(2 ** (b - 1) - 1) for n, b in bits.items()} | {
        f"{n}_unsigned": str(2**b - 1) for n, b in bits.items()
    }
    t.insert({"id": "0", **low}, {"id": str(2**64 - 1), **high}, {"id": "7"}, {"id": "8"})
    yield
    t.delete("7")
    yield


@case("decimals of many scales", by_spark=True)
def decimals(t: Table) -> Iterator[None]:
    kinds = ((1, 0), (5, 5), (9, 0), (9, 2), (10, 2), (18, 18), (19, 0), (30, 30), (38, 0), (38, 10), (38, 30))
    t.has({"id": "decimal(20,5)", **{f"d{p}_{s}": f"decimal({p},{s})" for p, s in kinds}})

    def most(p: int, s: int) -> str:
        return (f"{'9' * (p - s) or '0'}.{'9' * s}").rstrip(".")

    t.insert({"id": "0.00001", **{f"d{p}_{s}": most(p, s) for p, s in kinds}})
    t.insert({"id": "-1.5", **{f"d{p}_{s}": "-" + most(p, s) for p, s in kinds}})
    t.insert(
        {"id": "0", **{f"d{p}_{s}": f"0.{'0' * (s - 1)}1" if s else "0" for p, s in kinds}}, {"id": "3"}, {"id": "4"}
    )
    yield
    t.delete("3")
    yield


@case("floating point: -0, the smallest, the largest")
def floats(t: Table) -> Iterator[None]:
    t.has({"id": "int", "d": "double", "f": "float"})
    told = [("-0.0", "-0.0"), ("5e-324", "1e-45"), ("1.7976931348623157e308", "3.4028234663852886e38"), (None, None)]
    told += [("0.0", "0.0"), ("-2.2250738585072014e-308", "-1.1754943508222875e-38"), ("0.1", "0.25")]
    t.insert(*({"id": str(i), "d": d, "f": f} for i, (d, f) in enumerate(told)))
    yield
    t.delete("6")
    yield


@case("days and times, far ones, too: `timestampNtz`")
def times(t: Table) -> Iterator[None]:
    t.has({"id": "date", "at": "datetime(6)", "zoned": "timestamp(6)", "t": "time(3)", "y": "year"})
    days = [
        "0001-01-01",
        "0999-12-31",
        "1582-10-04",
        "1582-10-15",
        "1883-11-18",
        "1969-12-31",
        "2038-01-20",
        "9999-12-31",
    ]
    for n, day in enumerate(days):
        told = {"at": f"{day} 23:59:59.99999{n}", "zoned": f"{day} 00:00:00.00000{n}Z", "y": str(1901 + n)}
        t.insert({"id": day, **told, "t": f"-838:59:59.00{n}"})
    t.insert({"id": "2000-01-01"}, {"id": "2000-01-02"})
    yield
    t.delete("2000-01-01", "1582-10-04")
    yield


@case("bytes, also as a key, and bits")
def binary(t: Table) -> Iterator[None]:
    t.has({"id": "varbinary(9)", "v": "blob", "b": "bit(1)", "bits": "bit(64)"})
    t.insert(
        {"id": "AP8=", "v": "/wCA", "b": "1", "bits": str(2**64 - 1)}, {"id": "AA==", "v": "", "b": "0", "bits": "0"}
    )
    t.insert({"id": ""}, {"id": "/w=="})
    yield
    t.delete("/w==")
    yield


@case("columns that hold nothing but NULL")
def nulls(t: Table) -> Iterator[None]:
    t.has({"id": "int", "a": "int", "s": "text", "d": "decimal(9,2)", "at": "datetime", "f": "double"})
    t.insert(*({"id": str(i)} for i in range(4)))
    yield
    t.delete("2")
    yield


@case("no key: equal rows are counted", by_spark=True)
def keyless(t: Table) -> Iterator[None]:
    t.has(PLAIN, keys=())
    t.rows = {}
    for number, a in enumerate(("x", "x", "y", None)):
        row: dict[str, str | None] = {"id": "1", "a": a}
        t.rows[str(number),] = row
        t.said.append(t.now.insert(t.place(), row))
    yield
    t.said.append(t.now.delete(t.place(), t.rows.pop(("0",))))
    yield
