import pytest

from cdc_platform.mysql.ddl import Statement
from cdc_platform.mysql.dml import changed_table


@pytest.mark.parametrize(
    ("sql", "name"),
    [
        ("INSERT INTO mysql.hb2(id, v) values (1,17) ON DUPLICATE KEY UPDATE v = 17", "mysql.hb2"),
        ("insert /* x */ low_priority ignore `a b`.`c``d` values (1)", "a b.c`d"),
        ("INSERT t SELECT * FROM shop.orders", "s.t"),
        ("REPLACE INTO mysql.ha_health_check(id) VALUES (1)", "mysql.ha_health_check"),
        ("UPDATE t SET a = 1", "s.t"),
        ("UPDATE LOW_PRIORITY x.t AS y SET a = 1", "x.t"),
        ("DELETE FROM x.t", "x.t"),
        ("DELETE QUICK FROM t WHERE a = 1;", "s.t"),
        ("-- hi\nDELETE FROM t LIMIT 1", "s.t"),
        ("LOAD DATA LOCAL INFILE '/tmp/INTO TABLE z' IGNORE INTO TABLE x.t FIELDS TERMINATED BY ','", "x.t"),
        ("UPDATE t, u SET t.a = u.a", None),
        ("UPDATE t JOIN u USING (id) SET t.a = u.a", None),
        ("DELETE t FROM t JOIN u USING (id)", None),
        ("DELETE FROM t USING t JOIN u USING (id)", None),
        ("DELETE FROM t, u USING t JOIN u", None),
        ("CALL p()", None),
        ("ALTER TABLE t ADD a INT", None),
        ("WITH x AS (SELECT 1) UPDATE t SET a = 1", None),
        ("INSERT INTO", None),
        ("INSERT INTO 'x' VALUES (1)", None),
        ("INSERT INTO a.b.c VALUES (1)", None),
        ("", None),
    ],
)  # fmt: skip
def test_the_table_that_a_statement_changes(sql, name):
    found = changed_table(Statement("s", sql))
    assert (found and ".".join(found)) == name


def test_without_a_database_nobody_knows():
    assert changed_table(Statement(None, "DELETE FROM t")) is None
