"""Types that become known after rows were decoded without them: the rows are decoded again, their tables made anew."""

import json
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from cdc_platform import tables
from cdc_platform.changelog import retyped, write
from cdc_platform.changelog import run as changelog
from cdc_platform.changelog.retyped import Retyped
from cdc_platform.changes import run as formats
from cdc_platform.changes.decoded_by import decoded_by
from cdc_platform.formats.contract import MESSAGE
from cdc_platform.lake import new_tables, stores
from cdc_platform.snapshots import run as snapshots
from cdc_platform.snapshots.target import Target
from tests.formats import canal_fixtures

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

LANDED = datetime(2026, 11, 20, tzinfo=UTC)
CREATE = "CREATE TABLE t (id int primary key, d date, n decimal(6,2), u bigint unsigned, h time, v varchar(5))"


class Topics:
    """Topics that are landed without Kafka, and the stages behind them."""

    def __init__(self, spark, make_config, format_, **options):
        self.spark, self.make_config, self.format = spark, make_config, format_
        self.with_options(**options)
        self._offsets = {name: count() for name in ("rows", "ddl")}

    def with_options(self, *, rules=None, exclude=(), **options):
        kept = {"include": ["d.*"], "exclude": list(exclude), **(rules or {})}
        told = {"topics": ["rows", "ddl"], "tables": kept}
        self.config = self.make_config([{"name": "s", "format": self.format, "options": options, **told}])
        self.source = self.config.source("s")

    def land(self, *messages, topic="rows", keys=None):
        keys = keys or [None] * len(messages)
        rows = [
            {"topic": topic, "partition": 0, "offset": next(self._offsets[topic]), "timestamp": LANDED}
            | {"landed_at": LANDED, "value": as_bytes(m), "key": k and as_bytes(k)}
            for m, k in zip(messages, keys, strict=True)
        ]
        write_deltalake(
            tables.LANDING.at(self.config.lake, source="s"), pa.Table.from_pylist(rows, MESSAGE), mode="append"
        )

    def decode(self):
        for stage in (formats, changelog):
            stage.run(self.spark, self.config, self.source)

    def catch_up(self):
        self.decode()
        return snapshots.run(self.spark, self.config, self.source)

    def ask(self, sql, table, **names):
        builder = QueryBuilder().register("t", DeltaTable(table.at(self.config.lake, **names)))
        return [tuple(r.values()) for r in pa.table(builder.execute(sql).read_all()).to_pylist()]

    def live(self, table="t"):
        path = Target.of(self.config, "s", "d", table).snapshot.uri()
        found = QueryBuilder().register("t", DeltaTable(path)).execute("SELECT * FROM t ORDER BY 1").read_all()
        return [tuple(v for k, v in r.items() if not k.startswith("_cdc_")) for r in pa.table(found).to_pylist()]

    def typed_changes(self):
        path = tables.TYPED_CHANGES_PATH.of(self.config.lake, "s", ("d", "t"))
        sql = "SELECT _cdc_op, before, after FROM t ORDER BY _cdc_binlog_pos"
        found = pa.table(QueryBuilder().register("t", DeltaTable(path)).execute(sql).read_all()).to_pylist()
        return [(op, *(row and tuple(row.values()) for row in rows)) for op, *rows in (r.values() for r in found)]

    def state(self, table="t"):
        sql = f"SELECT state, reason FROM t WHERE \"table\" = '{table}' ORDER BY rebuild DESC, batch DESC LIMIT 1"
        return self.ask(sql, tables.TABLE_STATE)[0]

    def events(self):
        return self.ask("SELECT decision, reason FROM t WHERE topic IS NULL", tables.SCHEMA_CHANGES)

    def changelog(self):
        sql = 'SELECT topic, "offset", op, after FROM t ORDER BY 1, 2'
        return [(t, o, op, dict(a or ())) for t, o, op, a in self.ask(sql, tables.CHANGELOG)]


def as_bytes(message):
    return message if isinstance(message, bytes) else json.dumps(message).encode()


def place(pos):
    return {"db": "d", "table": "t", "file": "bin.000001", "pos": pos, "server_id": 1, "ts_ms": pos, "row": 0}


def change(pos, op, before, after):
    return {"op": op, "before": before, "after": after, "source": place(pos)}


def row(number, **cells):
    return {"id": number, "d": 20000 + number, "n": "ATk=", "u": -1, "h": 3_600_000_000, "v": "x", **cells}


def as_kept(number, v="x"):
    return number, date(2024, 10, 4 + number), Decimal("3.13"), Decimal(2**64 - 1), "01:00:00", v


def ddl(pos, sql, columns):
    changes = [
        {
            "type": sql.split()[0],
            "id": '"d"."t"',
            "table": {"primaryKeyColumnNames": ["id"], "columns": columns},
        }
    ]
    return {"source": place(pos), "databaseName": "d", "ddl": sql, "tableChanges": changes}


COLUMNS = [
    {"name": n, "typeName": t, "length": length, "scale": scale}
    for n, t, length, scale in (
        ("id", "INT", None, None),
        ("d", "DATE", None, None),
        ("n", "DECIMAL", 6, 2),
        ("u", "BIGINT UNSIGNED", None, None),
        ("h", "TIME", None, None),
        ("v", "VARCHAR", 5, None),
    )
]


def rows_of(topics):
    topics.land(
        change(100, "c", None, row(1)),
        change(110, "c", None, row(2)),
        change(120, "u", row(1), row(1, v="y")),
        change(130, "c", None, row(3)),
        change(140, "d", row(3), None),
        keys=[{"id": 1}, {"id": 2}, {"id": 1}, {"id": 3}, {"id": 3}],
    )


@pytest.fixture
def debezium(spark, make_config):
    return Topics(spark, make_config, "debezium")


@pytest.fixture
def schema_file(tmp_path):
    path = tmp_path / "schema.sql"
    path.write_text(f"USE d;\n{CREATE};\n")
    return str(path)


@pytest.mark.thorough
def test_a_schema_file_that_comes_later(debezium, schema_file):
    rows_of(debezium)
    debezium.catch_up()
    assert debezium.live()[1] == ("2", "20002", "ATk=", "-1", "3600000000", "x")

    debezium.with_options(schema_file=schema_file)
    debezium.catch_up()
    assert debezium.live() == [as_kept(1, "y"), as_kept(2)]
    assert debezium.state() == ("live", None)
    [(decision, reason)] = debezium.events()
    assert decision == "rebuilt"
    assert reason.startswith("5 changes were decoded again, since types of its columns became known")
    assert "d: longtext is date" in reason
    assert [(o, op) for _, o, op, _ in debezium.changelog()] == [
        (0, "insert"),
        (1, "insert"),
        (2, "update"),
        (3, "insert"),
        (4, "delete"),
    ]
    assert debezium.changelog()[1][3]["d"] == "2024-10-06"

    debezium.land(change(150, "u", row(2), row(2, v="z")), keys=[{"id": 2}])
    debezium.catch_up()
    debezium.catch_up()
    assert debezium.live() == [as_kept(1, "y"), as_kept(2, "z")]
    assert len(debezium.events()) == 1


@pytest.mark.thorough
def test_typed_changes_have_these_types_too(debezium, schema_file):
    kept = {"typed_changes": ["d.*"]}
    debezium.with_options(rules=kept)
    rows_of(debezium)
    debezium.catch_up()
    assert debezium.typed_changes()[1] == ("insert", None, ("2", "20002", "ATk=", "-1", "3600000000", "x"))
    debezium.with_options(rules=kept, schema_file=schema_file)
    for more in (False, True):
        if more:
            debezium.land(change(150, "u", row(2), row(2, v="z")), keys=[{"id": 2}])
        debezium.catch_up()
        assert debezium.typed_changes() == [
            ("insert", None, as_kept(1)),
            ("insert", None, as_kept(2)),
            ("update", as_kept(1), as_kept(1, "y")),
            ("insert", None, as_kept(3)),
            ("delete", as_kept(3), None),
            *([("update", as_kept(2), as_kept(2, "z"))] if more else []),
        ]


@pytest.mark.thorough
def test_rows_that_come_before_the_schema_changes_topic(debezium):
    """The topic of tableChanges is read later than the rows: what was decoded without it is decoded again."""
    rows_of(debezium)
    debezium.catch_up()
    debezium.land(ddl(50, CREATE, COLUMNS), topic="ddl")
    debezium.land(change(150, "c", None, row(4)), keys=[{"id": 4}])
    debezium.catch_up()
    assert debezium.live() == [as_kept(1, "y"), as_kept(2), as_kept(4)]
    assert debezium.state() == ("live", None)
    assert [d for d, _ in debezium.events()] == ["rebuilt"]

    # A real ALTER is no change of what is known of earlier rows.
    debezium.land(
        {
            **ddl(160, "ALTER TABLE t MODIFY v varchar(9)", [*COLUMNS[:5], {**COLUMNS[5], "length": 9}]),
        },
        topic="ddl",
    )
    debezium.land(change(170, "u", row(4), row(4, v="123456789")), keys=[{"id": 4}])
    debezium.catch_up()
    assert debezium.live()[2] == as_kept(4, "123456789")
    assert [d for d, _ in debezium.events()] == ["rebuilt"]


def scaled(pos, scale, digits=6):
    """An ALTER of a decimal column."""
    columns = [c | {"scale": scale, "length": digits} if c["name"] == "n" else c for c in COLUMNS]
    return ddl(pos, f"ALTER TABLE t MODIFY n decimal({digits},{scale})", columns)


def never(*_):
    raise AssertionError("rows that today's decoder gave are decoded again")


@pytest.mark.thorough
def test_rows_are_decoded_again_only_where_more_is_known_now(debezium, monkeypatch):
    """A list that an ALTER made stands against the CREATE before it. A statement that comes late is no such thing."""
    debezium.land(ddl(50, CREATE, COLUMNS), scaled(60, 1), topic="ddl")
    rows_of(debezium)
    with monkeypatch.context() as decoded_once:
        decoded_once.setattr(retyped, "decode", never)
        debezium.catch_up()
    assert [r[2] for r in debezium.live()] == [Decimal("31.3")] * 2
    assert debezium.ask("SELECT 1 FROM t", tables.TYPES_KNOWN), "the list was in doubt"
    [(by,)] = debezium.ask("SELECT DISTINCT decoded_by FROM t", tables.CHANGELOG)
    [(told,)] = debezium.ask("SELECT digest FROM t", tables.CONTEXTS, source="s")
    assert by == decoded_by(told)

    debezium.land(scaled(115, 3), topic="ddl")
    debezium.land(change(150, "c", None, row(4)), keys=[{"id": 4}])
    debezium.catch_up()
    n = [(r[0], r[2]) for r in debezium.live()]
    assert n == [(1, Decimal("0.313")), (2, Decimal("31.300")), (4, Decimal("0.313"))]
    assert debezium.state() == ("live", None)
    each = debezium.ask('SELECT decoded_by, count(*) FROM t GROUP BY 1 ORDER BY min("offset")', tables.CHANGELOG)
    assert [(then == by, rows) for then, rows in each] == [(True, 2), (False, 4)]


@pytest.mark.thorough
@pytest.mark.parametrize("fits", [True, False], ids=["of the type", "not of the type"])
def test_a_run_that_ends_before_it_has_made_the_snapshot_leaves_no_rows_as_they_were(debezium, fits):
    """The batch that is still to come has the rows from before they were decoded again."""
    debezium.land(ddl(50, CREATE, COLUMNS), topic="ddl")
    rows_of(debezium)
    debezium.decode()
    debezium.land(scaled(115, *((3, 6) if fits else (1, 2))), topic="ddl")
    debezium.catch_up()
    if fits:
        assert [(r[0], r[2]) for r in debezium.live()] == [(1, Decimal("0.313")), (2, Decimal("3.130"))]
        assert debezium.state() == ("live", None)
    else:
        state, reason = debezium.state()
        assert state == "stopped" and "changes can't be of them, the first at rows/0 offset 2" in reason


@pytest.mark.thorough
def test_rows_of_an_earlier_version_are_compared(debezium, monkeypatch):
    """Whose changelog doesn't tell what rows were decoded by."""
    before = replace(tables.CHANGELOG, columns=tables.CHANGELOG.columns[:-1], added=())
    new_tables.create(stores.lake(debezium.config).at(before.path), before)
    debezium.land(ddl(50, CREATE, COLUMNS), scaled(110, 1), topic="ddl")  # where a row stands, too
    rows_of(debezium)
    with monkeypatch.context() as earlier:
        earlier.setattr(write, "_decoded_by", lambda _: None)
        debezium.decode()
    monkeypatch.setattr(retyped, "decode", never)
    with pytest.raises(AssertionError, match="decoded again"):
        snapshots.run(debezium.spark, debezium.config, debezium.source)


@pytest.mark.thorough
def test_a_list_that_was_replaced_and_comes_again_stays_in_the_history(debezium, schema_file):
    rows_of(debezium)
    debezium.catch_up()
    debezium.with_options(schema_file=schema_file)
    debezium.catch_up()
    debezium.with_options()
    debezium.land(scaled(200, 3), topic="ddl")
    debezium.land(change(150, "c", None, row(4)), keys=[{"id": 4}])
    debezium.catch_up()
    debezium.catch_up()
    [(version,)] = debezium.ask('SELECT schema_version FROM t WHERE "offset" = 5', tables.CHANGELOG)
    lists = debezium.ask("SELECT schema_version, columns FROM t WHERE kind = 'message'", tables.SCHEMA_HISTORY)
    assert "longtext" in dict(lists)[version]


@pytest.mark.thorough
def test_a_value_that_cant_be_of_its_type_stops_the_table_and_better_types_heal_it(debezium, schema_file, tmp_path):
    debezium.land(change(100, "c", None, row(1, v="far too long")), keys=[{"id": 1}])
    debezium.land(change(110, "c", None, row(2)), keys=[{"id": 2}])
    debezium.catch_up()
    debezium.with_options(schema_file=schema_file)
    debezium.catch_up()
    state, reason = debezium.state()
    assert state == "stopped"
    assert "1 changes can't be of them, the first at rows/0 offset 0" in reason
    assert "'far too long' is longer than varchar(5)" in reason
    assert debezium.live()[0][5] == "far too long"  # as it was
    assert [d for d, _ in debezium.events()] == ["stopped"]

    better = tmp_path / "better.sql"
    better.write_text(f"USE d;\n{CREATE.replace('varchar(5)', 'varchar(20)')};\n")
    debezium.with_options(schema_file=str(better))
    debezium.catch_up()
    assert debezium.state() == ("live", None)
    assert debezium.live() == [as_kept(1, "far too long"), as_kept(2)]


def killed_here(*_):
    raise KeyboardInterrupt


@pytest.mark.thorough
def test_a_killed_run_is_done_again(debezium, schema_file, monkeypatch):
    rows_of(debezium)
    debezium.catch_up()
    debezium.with_options(schema_file=schema_file)
    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(Retyped, "_forget", killed_here)
        debezium.catch_up()
    debezium.catch_up()
    debezium.catch_up()
    assert debezium.live() == [as_kept(1, "y"), as_kept(2)]
    assert debezium.state() == ("live", None)
    lists = debezium.ask("SELECT columns FROM t WHERE kind = 'message'", tables.SCHEMA_HISTORY)
    assert ["longtext" in columns for (columns,) in lists] == [False]


@pytest.mark.thorough
def test_a_table_that_is_let_in_later(debezium, schema_file):
    debezium.with_options(exclude=["d.t"])
    rows_of(debezium)
    debezium.catch_up()
    debezium.with_options(exclude=["d.t"], schema_file=schema_file)
    debezium.catch_up()
    debezium.with_options(schema_file=schema_file)
    debezium.catch_up()
    assert debezium.live() == [as_kept(1, "y"), as_kept(2)]
    assert debezium.state() == ("live", None)


@pytest.mark.thorough
def test_types_of_option_columns_that_are_named_later(debezium):
    debezium.land(change(100, "c", None, row(1)), change(110, "c", None, row(2)), keys=[{"id": 1}, {"id": 2}])
    debezium.catch_up()
    types = {"id": "int", "d": "date", "n": "decimal(6,2)", "u": "bigint unsigned", "h": "time", "v": "varchar(5)"}
    debezium.with_options(columns={"d.t": types})
    debezium.catch_up()
    assert debezium.live() == [as_kept(1), as_kept(2)]


def of_canal(place, **cells):
    columns = {"id": "int key", "e": "enum", "n": "decimal", "v": "varchar"}
    rows = [{"after": {"id": str(place), **cells}}]
    header = {"schemaName": "d", "logfileOffset": place}
    return canal_fixtures.entry({"header": header, "event": "INSERT", "columns": columns, "rows": rows})


def ddl_of_canal(place, sql):
    header = {"schemaName": "d", "logfileOffset": place}
    change = {"eventType": "CREATE", "isDdl": True, "sql": sql, "ddlSchemaName": "d"}
    return canal_fixtures.entry({"header": header, "change": change, "type": "ROWDATA"})


@pytest.mark.thorough
def test_canals_protobuf_is_completed_by_the_statement_of_its_own_batch(spark, make_config):
    canal = Topics(spark, make_config, "canal")
    canal.land(of_canal(1, e=None, n="1.5", v="a"), of_canal(2, e="2", n="2.25", v="b"))
    canal.catch_up()
    assert canal.live() == [(1, None, "1.5", "a")]
    canal.land(
        ddl_of_canal(0, "CREATE TABLE t (id int primary key, e enum('x','y'), n decimal(6,2), v varchar(3))"),
        of_canal(3, e="1", n="3", v="abc"),
        of_canal(4, e="1", n="3", v="abcd"),
    )
    canal.catch_up()
    assert canal.live() == [
        (1, None, Decimal("1.50"), "a"),
        (2, "y", Decimal("2.25"), "b"),
        (3, "x", Decimal("3.00"), "abc"),
    ]
    held = canal.ask('SELECT "offset", reason FROM t WHERE resolved_at IS NULL', tables.QUARANTINE)
    assert [(offset, "'abcd' doesn't fit its type 'varchar(3)'" in reason) for offset, reason in held] == [(4, True)]
    assert [d for d, _ in canal.events()] == ["rebuilt"]
