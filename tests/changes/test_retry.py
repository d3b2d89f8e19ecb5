"""Rows of TDSQL that come before their table's columns are known: in quarantine first, then in the snapshot, once."""

import json
import shutil
from datetime import UTC, datetime
from itertools import count

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from cdc_platform import tables
from cdc_platform.changelog import run as changelog
from cdc_platform.changes import run as formats
from cdc_platform.formats.contract import MESSAGE
from cdc_platform.formats.tdsql import FORMAT
from cdc_platform.lake import commits, held_rows, stores
from cdc_platform.lake.data_files import Output, Sink
from cdc_platform.landing import counting, direct
from cdc_platform.snapshots import run as snapshots
from cdc_platform.snapshots.target import Target
from cdc_platform.spark import delta_sql

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

LANDED = datetime(2026, 11, 20, tzinfo=UTC)
CREATE = "CREATE TABLE t (id int primary key, v varchar(20))"


class Topic:
    """A TDSQL topic that is landed without Kafka, and the stages behind it."""

    def __init__(self, spark, make_config, **options):
        self.spark, self.make_config = spark, make_config
        self.with_options(**options)
        self._offsets = count()

    def with_options(self, **options):
        told = {"topics": ["t"], "tables": {"include": ["d.*"], "exclude": ["*.unwanted"]}, "options": options}
        self.config = self.make_config([{"name": "s", "format": "tdsql", **told}])
        self.source = self.config.source("s")

    def land(self, *messages):
        rows = [
            {"topic": "t", "partition": 0, "offset": next(self._offsets), "timestamp": LANDED, "landed_at": LANDED}
            | {"value": json.dumps(m).encode()}
            for m in messages
        ]
        write_deltalake(
            tables.LANDING.at(self.config.lake, source="s"), pa.Table.from_pylist(rows, MESSAGE), mode="append"
        )

    def land_noted(self, *messages):
        """As from Kafka: with what a file notes of its records."""
        told = {"topic": "t", "partition": 0, "timestamp": LANDED, "landed_at": LANDED}
        rows = [{**told, "offset": next(self._offsets), "value": json.dumps(m).encode()} for m in messages]
        path = delta_sql.ensure(tables.LANDING, tables.LANDING.at(stores.lake(self.config), source="s"))
        out = Output(Sink(path, tables.LANDING.arrow(), (), ()))
        batch = pa.RecordBatch.from_pylist(rows, tables.LANDING.arrow())
        direct._write(counting.Asked.of(FORMAT.context), {}, iter([batch]), {"landing": out})
        commits.append_files(out.sink, [out.close()])

    def read_on(self):
        for room in (formats, changelog):
            room.run(self.spark, self.config, self.source)

    def catch_up(self):
        self.read_on()
        snapshots.run(self.spark, self.config, self.source)

    def query(self, sql, table, **names):
        builder = QueryBuilder().register("t", DeltaTable(table.at(self.config.lake, **names)))
        return [tuple(r.values()) for r in pa.table(builder.execute(sql).read_all()).to_pylist()]

    def snapshot(self, table="t"):
        path = Target.of(self.config, "s", "d", table).snapshot.uri()
        if not DeltaTable.is_deltatable(path):
            return None
        found = QueryBuilder().register("t", DeltaTable(path)).execute("SELECT * FROM t ORDER BY id").read_all()
        return [tuple(v for k, v in r.items() if not k.startswith("_cdc_")) for r in pa.table(found).to_pylist()]

    def outcomes(self):
        sql = "SELECT outcome, sum(records) FROM t GROUP BY outcome HAVING sum(records) <> 0 ORDER BY 1"
        return dict(self.query(sql, tables.OFFSET_LEDGER))

    def quarantine(self):
        sql = 'SELECT "offset", resolved_at IS NOT NULL FROM t ORDER BY 1, quarantined_at'
        return self.query(sql, tables.QUARANTINE) if self.outcomes() else []

    def changelog(self):
        return self.query('SELECT "offset", op FROM t ORDER BY 1', tables.CHANGELOG)


def row(op, where=(), field=(), table="t"):
    told = {"logtype": "mysqlbinlog", "eventtypestr": op, "db": "d", "table": table, "begintime": 5}
    return {**told, "where": list(where), "field": list(field)}


def ddl(sql):
    return {"logtype": "mysqlbinlog", "eventtypestr": "query", "db": "d", "table": "", "begintime": 5, "sql": sql}


@pytest.fixture
def topic(spark, make_config):
    return Topic(spark, make_config)


@pytest.mark.thorough
def test_statements_are_put_aside_once(topic):
    statements = [CREATE, "ALTER TABLE t ADD w int", "DROP TABLE t"]
    for turn, sql in enumerate(statements):
        topic.land(row("insert", field=[str(turn), "'query'"]), ddl(sql), row("insert", field=["7", "'\"query\"'"]))
        formats.run(topic.spark, topic.config, topic.source)
    seen = topic.query('SELECT "offset", ddl, db FROM t ORDER BY 1', tables.DDL_SEEN, source="s")
    assert seen == [(1 + 3 * turn, sql, "d") for turn, sql in enumerate(statements)]
    kinds = topic.query(
        "SELECT kind, count(*) FROM t GROUP BY kind ORDER BY 1", tables.CHANGES, format="tdsql", source="s"
    )
    assert dict(kinds)["ddl"] == 3


@pytest.mark.thorough
def test_files_that_note_no_ddl_are_not_looked_through_for_it(topic):
    topic.land_noted(ddl(CREATE), row("insert", field=["1", "'a'"]))
    topic.catch_up()
    before = DeltaTable(tables.DDL_SEEN.at(topic.config.lake, source="s")).version()
    topic.land_noted(row("insert", field=["2", "'b'"]))
    topic.catch_up()
    assert DeltaTable(tables.DDL_SEEN.at(topic.config.lake, source="s")).version() == before
    later = row("insert", field=["3", "'c'"]), row("insert", field=["4", "'d'", "5"])
    topic.land_noted(later[0], ddl("ALTER TABLE t ADD w int"), later[1])
    topic.catch_up()
    assert topic.snapshot() == [(1, "a", None), (2, "b", None), (3, "c", None), (4, "d", 5)]
    assert topic.outcomes() == {"applied": 6}


def test_rows_heal_in_order_when_their_table_is_created_later(topic):
    topic.land(
        row("insert", field=["1", "'a'"]),
        row("insert", field=["2", "'b'"]),
        row("update", ["2", "'b'"], ["2", "'c'"]),
        row("insert", field=["9"], table="unwanted"),
    )
    topic.read_on()
    assert topic.quarantine() == [(0, False), (1, False), (2, False)]
    assert [(r["db"], r["table"], r["rows"]) for r in held_rows.by_table(topic.config)] == [("d", "t", 3)]
    assert topic.outcomes() == {"quarantined": 3, "filtered": 1}

    topic.land(ddl("CREATE TABLE other (id int primary key)"), row("delete", ["1", "'a'"]))
    topic.read_on()  # more is known, but not of this table
    assert topic.quarantine() == [(0, False), (1, False), (2, False), (5, False)]

    topic.land(ddl(CREATE), row("insert", field=["3", "'d'"]), row("delete", ["3", "'d'"]))
    topic.catch_up()
    assert topic.snapshot() == [(2, "c")]
    assert topic.quarantine() == [(0, True), (1, True), (2, True), (5, True)]
    assert held_rows.by_table(topic.config) == []
    assert topic.changelog() == [
        (0, "insert"),
        (1, "insert"),
        (2, "update"),
        (5, "delete"),
        (7, "insert"),
        (8, "delete"),
    ]
    assert topic.outcomes() == {"applied": 8, "filtered": 1}


@pytest.mark.thorough
def test_what_was_tried_is_noted_above_what_the_log_recorded(topic):
    """As after a swap: the rows of the table count from the beginning, its log doesn't."""
    topic.land(row("insert", field=["1", "'a'"]))
    formats.run(topic.spark, topic.config, topic.source)
    contexts = tables.CONTEXTS.at(stores.lake(topic.config), source="s")
    commits.append_files(Sink(contexts, tables.CONTEXTS.arrow(), (), ()), [], ("context s", 5))
    topic.land(ddl(CREATE))
    formats.run(topic.spark, topic.config, topic.source)
    assert topic.query("SELECT number FROM t ORDER BY 1", tables.CONTEXTS, source="s") == [(0,), (6,)]


@pytest.mark.thorough
def test_a_change_that_heals_late_does_not_undo_a_newer_one(topic, tmp_path):
    topic.land(row("insert", field=["1", "'old'"]), row("insert", field=["2", "'old'"]))
    topic.land(ddl("DROP TABLE t"), ddl(CREATE.replace("varchar(20)", "text")))
    topic.land(
        row("insert", field=["1", "'new'"]), row("insert", field=["2", "'gone'"]), row("delete", ["2", "'gone'"])
    )
    topic.catch_up()
    assert topic.snapshot() == [(1, "new")]
    assert topic.quarantine() == [(0, False), (1, False)]

    seed = tmp_path / "seed.sql"
    seed.write_text(f"USE d;\n{CREATE};\n")
    topic.with_options(schema_file=str(seed))
    topic.catch_up()
    assert topic.snapshot() == [(1, "new")]
    assert topic.quarantine() == [(0, True), (1, True)]
    assert topic.outcomes() == {"applied": 7}


@pytest.mark.thorough
def test_a_killed_run_heals_nothing_twice(topic, tmp_path):
    topic.land(row("insert", field=["1", "'a'"]), row("insert", field=["2"]), row("insert", field=["x", "'b'"]))
    topic.read_on()
    topic.land(ddl(CREATE))
    formats.run(topic.spark, topic.config, topic.source)
    shutil.rmtree(tables.CONTEXTS.at(topic.config.lake, source="s"))  # as if it had ended before the note
    topic.read_on()
    topic.catch_up()
    assert topic.snapshot() == [(1, "a"), (2, None)]
    assert topic.changelog() == [(0, "insert"), (1, "insert")]
    assert topic.quarantine() == [(0, True), (1, True), (2, True), (2, False)]
    [(reason,)] = topic.query("SELECT reason FROM t WHERE resolved_at IS NULL", tables.QUARANTINE)
    assert reason == "column 'id': 'x' doesn't fit its type 'int'"
    assert topic.outcomes() == {"applied": 3, "quarantined": 1}
