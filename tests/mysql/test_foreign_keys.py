import pytest

from cdc_platform.mysql.foreign_keys import added, dropped


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        (
            "CREATE TABLE k (p INT PRIMARY KEY, CONSTRAINT f FOREIGN KEY (p) REFERENCES p (id) ON DELETE CASCADE)",
            [("f", "p: ON DELETE CASCADE")],
        ),
        (
            "CREATE TABLE k (a INT, `b c` INT, FOREIGN KEY (a, `b c`) REFERENCES `p q` (x, y) ON UPDATE CASCADE "
            "ON DELETE SET NULL, KEY (a)) ENGINE=InnoDB",
            [("", "a, b c: ON UPDATE CASCADE, ON DELETE SET NULL")],
        ),
        (
            "ALTER TABLE k ADD CONSTRAINT `F1` FOREIGN KEY (p) REFERENCES p(id) ON DELETE SET DEFAULT",
            [("f1", "p: ON DELETE SET DEFAULT")],
        ),
        (
            "ALTER TABLE k ADD c INT, ADD FOREIGN KEY fx (c) REFERENCES d.p(id) ON DELETE CASCADE",
            [("fx", "c: ON DELETE CASCADE")],
        ),
        ("ALTER TABLE k ADD COLUMN c INT REFERENCES p(id) ON DELETE CASCADE", [("", "c: ON DELETE CASCADE")]),
        ("CREATE TABLE k (id INT, c INT REFERENCES p(id) ON DELETE CASCADE)", [("", "c: ON DELETE CASCADE")]),
        ("CREATE TABLE k (p INT, FOREIGN KEY (p) REFERENCES p (id) ON DELETE RESTRICT ON UPDATE NO ACTION)", []),
        ("CREATE TABLE k (p INT, FOREIGN KEY (p) REFERENCES p (id))", []),
        ("CREATE TABLE k (p INT COMMENT 'REFERENCES p ON DELETE CASCADE') COMMENT='ON DELETE CASCADE'", []),
        ("ALTER TABLE k ADD c TIMESTAMP ON UPDATE CURRENT_TIMESTAMP", []),
        ("DROP TABLE k", []),
        ("", []),
    ],
)  # fmt: skip
def test_foreign_keys_that_change_rows(sql, found):
    assert added(sql) == found


def test_dropped_names():
    sql = (
        "ALTER TABLE k DROP FOREIGN KEY `F`, DROP CONSTRAINT IF EXISTS g, DROP KEY h, DROP COLUMN i, drop foreign key j"
    )
    assert dropped(sql) == {"f", "g", "j"}
