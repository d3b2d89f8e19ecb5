"""Statements that come without rows."""

import pytest

from cdc_platform.formats.canal_common.statement import query

NAMED = {"db": "shop", "table": None}


@pytest.mark.parametrize(
    "sql",
    [
        "delete from t",
        "/* why */ delete from t",
        "/*!40000 delete from t */",
        "/*!40000 x */ delete from t",
        "/*M! delete */ from t",
        "-- note\n/*!50100 */update t set v = 1",
    ],
)
def test_a_statement_that_changes_rows_is_refused_however_its_comments_are_read(sql: str) -> None:
    with pytest.raises(ValueError, match="which rows it changed isn't told"):
        query(sql, False, NAMED)


@pytest.mark.parametrize("sql", ["ALTER TABLE t /*!50100 ADD c int */", "/*!50003 CREATE TABLE t (id int) */"])
def test_a_statement_with_executed_comments_is_ddl(sql: str) -> None:
    assert [(e["kind"], e["ddl"]) for e in query(sql, True, NAMED)] == [("ddl", sql)]


def test_settings_of_one_statement_are_none_of_a_session() -> None:
    session, sql = {"db": None, "table": None}, "SET STATEMENT lock_wait_timeout=5 FOR ALTER TABLE shop.t ADD c int"
    assert [e["kind"] for e in query(sql, False, session)] == ["ddl"]
    assert [e["kind"] for e in query("SET @x := 1", False, session)] == ["skip"]
