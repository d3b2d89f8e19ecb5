"""Columns that are alike but for their values: what patterns find, the parser finds too."""

import random

import numpy as np
import pyarrow as pa
import pytest

from cdc_platform.formats.canal.columns import plain_rows
from cdc_platform.formats.canal.patterns import match
from cdc_platform.formats.pb import canal_entry_pb2 as pb
from cdc_platform.formats.protobuf.in_place import Texts

ROWS = 3000
COLUMNS = [
    pb.Column(index=0, sqlType=-5, name="id", isKey=True, updated=True, isNull=False, mysqlType="bigint(20)"),
    pb.Column(index=1, sqlType=12, name="name", isKey=False, updated=False, isNull=False, mysqlType="varchar(64)"),
    pb.Column(name="bare"),
]
TOLD = ("index", "sqlType", "name", "isKey", "mysqlType", "isNull", "value")


def row(number, rng):
    """A row whose columns differ in value, updated and isNull alone."""
    out = []
    for column in COLUMNS:
        cell = pb.Column()
        cell.CopyFrom(column)
        cell.value = rng.choice((str(number), "", "é" * rng.randrange(100), "x" * rng.randrange(300)))
        if column.HasField("isNull"):
            cell.isNull, cell.updated = rng.random() < 0.2, rng.random() < 0.5
        out.append(cell)
    return out


def told(cell):
    return [getattr(cell, n) for n in TOLD]


def found(rows):
    """What columns say, by `plain_rows`, of after images."""
    values = [pb.RowData(afterColumns=cells).SerializeToString() for cells in rows]
    read = plain_rows(Texts.of(pa.array(values, pa.binary())), np.zeros(len(values), np.int32))
    assert read is not None
    images, heads = read[0].field("afterColumns").to_pylist(), read[1].to_pylist()
    return [[[{**heads[c["head"]], **c}[n] for n in TOLD] for c in image] for image in images], heads


def test_columns_alike_share_their_head():
    rng = random.Random(1)
    rows = [row(i, rng) for i in range(ROWS)]
    images, heads = found(rows)
    assert images == [[told(c) for c in cells] for cells in rows]
    assert len(heads) <= len(COLUMNS) + 1, "the very last column may have its own: it ends where the data does"


ODD = {
    "another type": lambda c: setattr(c, "mysqlType", "bigint(21)"),
    "another name": lambda c: setattr(c, "name", "Id"),
    "another place": lambda c: setattr(c, "index", 300),
    "no key": lambda c: setattr(c, "isKey", not c.isKey),
    "another sqlType": lambda c: setattr(c, "sqlType", 2004),
    "a length": lambda c: setattr(c, "length", 5),
    "nothing": lambda c: c.Clear(),
    "no flags": lambda c: [c.ClearField(n) for n in ("isKey", "updated", "isNull")],
    "no value": lambda c: c.ClearField("value"),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("which", [0, 1700, ROWS - 1])
def test_an_odd_column_among_them_is_read_for_itself(name, which):
    rng = random.Random(2)
    rows = [row(i, rng) for i in range(ROWS)]
    for cell in rows[which]:
        ODD[name](cell)
    images, _ = found(rows)
    assert images == [[told(c) for c in cells] for cells in rows]


def test_heads_are_in_order_of_appearance():
    rng = random.Random(3)
    rows = [row(i, rng) for i in range(ROWS)]
    rows[5][0].mysqlType = "int"
    read = plain_rows(
        Texts.of(pa.array([pb.RowData(afterColumns=c).SerializeToString() for c in rows], pa.binary())),
        np.zeros(ROWS, np.int32),
    )
    assert read is not None
    used = read[0].field("afterColumns").values.field("head").to_pylist()
    assert list(dict.fromkeys(used)) == list(range(len(read[1])))


def test_rows_of_many_tables_and_widths():
    rng = random.Random(4)
    rows = [row(i, rng)[: rng.randrange(4)] for i in range(6 * ROWS)]
    values = [pb.Column.SerializeToString(c) for cells in rows for c in cells]
    lengths = np.array([len(c) for c in rows])
    matches = match(Texts.of(pa.array(values, pa.binary())), lengths, np.arange(len(rows)) % 2)
    cells = [c for r in rows for c in r]
    hit = np.nonzero(matches.pattern >= 0)[0].tolist()
    assert len(hit) > len(cells) * 0.8
    texts = matches.value.bytes().to_pylist()
    for i in hit:
        like = cells[matches.pattern[i]]
        assert [like.name, like.mysqlType] == [cells[i].name, cells[i].mysqlType]
        assert (texts[i].decode(), bool(matches.null[i])) == (cells[i].value, cells[i].isNull)


@pytest.mark.parametrize(
    "tail", [b"\x42\x05abc", b"\x42\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x42\x80", b"\x28\x80\x00"]
)
def test_broken_columns_are_not_plain(tail):
    head = b"\x08\x01\x1a\x01a"
    columns = [head + b"\x42\x01v"] * 5000
    columns[2500] = head + tail
    values = [b"\x12" + bytes((len(c),)) + c for c in columns]
    rows = Texts.of(pa.array(values, pa.binary()))
    found = plain_rows(rows, np.zeros(len(values), np.int32))
    if tail == b"\x28\x80\x00":  # a flag in more bytes than it needs
        assert found is not None and found[0].field("afterColumns").values.field("value")[2500].as_py() == ""
    else:
        assert found is None
