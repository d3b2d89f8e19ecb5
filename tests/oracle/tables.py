"""The oracle's tables: every MySQL type at its limits, and keys of all sorts."""

TABLES = {
    "numbers": """(
  id bigint unsigned NOT NULL PRIMARY KEY,
  t tinyint, tu tinyint unsigned NOT NULL, s smallint, su smallint unsigned, m mediumint, mu mediumint unsigned,
  i int, iu int unsigned, b bigint, bu bigint unsigned, z int(6) unsigned zerofill, bo boolean,
  d1 decimal(65,30), d2 decimal(38,10), d3 decimal(5,0) NOT NULL, d4 decimal(10,2) unsigned, d5 decimal(30,30),
  f float, fd float(8,3), db double, b1 bit(1), b8 bit(8), b13 bit(13), b64 bit(64), y year
)""",
    "times": """(
  id int NOT NULL, at datetime(3) NOT NULL,
  da date, dt datetime, dt1 datetime(1), dt2 datetime(2), dt3 datetime(3), dt4 datetime(4), dt5 datetime(5),
  dt6 datetime(6), ts timestamp NULL, ts1 timestamp(1) NULL, ts3 timestamp(3) NULL, ts6 timestamp(6) NULL,
  ti time, ti1 time(1), ti2 time(2), ti3 time(3), ti4 time(4), ti5 time(5), ti6 time(6) NOT NULL,
  PRIMARY KEY (id, at)
)""",
    "texts": """(
  k varchar(30) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY,
  c char(10), v varchar(200) NOT NULL, tt tinytext, x text, mt mediumtext, lt longtext,
  l1 varchar(100) CHARACTER SET latin1, lx text CHARACTER SET latin1, g varchar(100) CHARACTER SET gbk,
  gx text CHARACTER SET gbk, a char(5) CHARACTER SET ascii,
  e enum('new','it''s, gold','a"b','北','back\\\\slash','') NOT NULL, s set('one','t''wo','thr"ee','四','x y'), j json,
  je longtext
)""",
    "bytes": """(
  k varbinary(16) NOT NULL PRIMARY KEY,
  b8 binary(8), b1 binary(1) NOT NULL, vb varbinary(300), tb tinyblob, bl blob, mb mediumblob, lb longblob,
  ge geometry, po point, ls linestring, pg polygon, mp multipoint, gc geometrycollection
)""",
    "parts": """(
  order_id bigint NOT NULL, line smallint unsigned NOT NULL, label varchar(40), qty int NOT NULL DEFAULT 0,
  price decimal(12,2), changed datetime, PRIMARY KEY (order_id, line)
)""",
    "odd `keys`": """(
  price decimal(20,5) NOT NULL, day date NOT NULL, `select` varchar(40), `na me` int, PRIMARY KEY (day, price)
)""",
    "notes": """(
  id int NOT NULL AUTO_INCREMENT PRIMARY KEY, title varchar(20) NOT NULL, body text, small int, ratio decimal(10,2),
  kind enum('a','b'), noted datetime
)""",
}
"""Table of database `oracle` → its definition."""

WIDE = ("numbers", "times", "texts", "bytes")
"""Those of all types."""

KEYLESS = "(a int, b varchar(10), c double)"

ADDED = (
    "int",
    "smallint NOT NULL DEFAULT -7",
    "varchar(20) DEFAULT 'it''s'",
    "varchar(30) NOT NULL DEFAULT ''",
    "decimal(10,2) DEFAULT 1.50",
    "datetime DEFAULT '2020-02-29 12:00:00'",
    "datetime(6)",
    "date",
    "timestamp(3) NULL",
    "float",
    "tinyint unsigned",
    "enum('a','b') DEFAULT 'b'",
    "varchar(40) CHARACTER SET latin1 DEFAULT 'é'",
    "varbinary(20)",
    "bit(5) DEFAULT b'101'",
    "time(2)",
    "json",
    "text",
)
"""Definitions of columns that are added."""
ADDED_DEFAULT = tuple(d for d in ADDED if "DEFAULT" in d)
ADDED_NULL = tuple(d for d in ADDED if "DEFAULT" not in d)

WIDER = {
    "tinyint(3) unsigned": ("smallint unsigned", "int", "bigint unsigned"),
    "smallint(6)": ("int", "bigint", "varchar(20)", "decimal(10,2)"),
    "int(11)": ("bigint", "int unsigned", "varchar(30)", "double", "int"),
    "bigint(20)": ("decimal(30,4)", "varchar(30)"),
    "varchar(20)": ("varchar(60)", "text", "varchar(20) CHARACTER SET gbk", "char(20)"),
    "varchar(30)": ("varchar(300)", "mediumtext"),
    "varchar(40)": ("varchar(40) CHARACTER SET utf8mb4", "varchar(80)"),
    "decimal(10,2)": ("decimal(20,4)", "decimal(8,1)", "double", "varchar(30)"),
    "datetime": ("datetime(3)", "datetime(6)", "date", "varchar(30)"),
    "datetime(6)": ("datetime(2)", "datetime"),
    "date": ("datetime",),
    "float": ("double",),
    "enum('a','b')": ("enum('a','b','c')", "enum('b','a')", "varchar(20)"),
    "varbinary(20)": ("varbinary(40)", "blob"),
    "time(2)": ("time(6)", "time"),
    "text": ("mediumtext", "longtext"),
    "bit(5)": ("bit(9)",),
}
"""Column type → types that MODIFY may turn it into (the database may still refuse)."""

NAMES = ("extra", "größe", "order", "with space", "c'q", "数量", "MiXed", "a.b", "$d")
"""Names of added columns; the next ones get a number. (No backtick: Debezium's parser, which reads DDL here, keeps it
doubled in ADD COLUMN and CHANGE.)"""
