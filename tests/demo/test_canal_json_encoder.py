"""The encoder's JSON read back with the json module, by rules written here once more."""

import itertools
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from cdc_platform.feeds.canal_json import CanalJsonEncoder
from cdc_platform.feeds.shop import TABLES
from cdc_platform.feeds.workload import Workload

ZONE = "Asia/Shanghai"
KEYS = {"data", "database", "es", "gtid", "id", "isDdl", "mysqlType", "old", "pkNames", "sql", "sqlType", "table", "ts",
        "type"}  # fmt: skip


@pytest.fixture(scope="module")
def shop():
    return Workload(seed=19, transactions=80)


@pytest.fixture(scope="module")
def sent(shop):
    return [json.loads(r.value) for r in CanalJsonEncoder("c", zone=ZONE).encode(shop.transactions)]


def duration(text):
    sign, clock = (-1, text[1:]) if text[0] == "-" else (1, text)
    hours, minutes, seconds = clock.split(":")
    micros = Decimal(hours) * 3_600_000_000 + Decimal(minutes) * 60_000_000 + Decimal(seconds) * 1_000_000
    return sign * timedelta(microseconds=int(micros))


def labels(type_text):
    return [x.replace("''", "'") for x in type_text[type_text.index("'") + 1 : -2].split("','")]


READ = {
    "tinyint": int, "smallint": int, "int": int, "bigint": int, "year": int, "decimal": Decimal, "double": float,
    "float": lambda v: float(np.float32(v)), "bit": int, "date": date.fromisoformat, "datetime": datetime.fromisoformat,
    "timestamp": lambda v: datetime.fromisoformat(v).replace(tzinfo=ZoneInfo(ZONE)).astimezone(UTC),
    "time": duration, "blob": lambda v: v.encode("latin-1"),
}  # fmt: skip


def row(types, texts):
    out = {}
    for name, text in texts.items():
        base = types[name].split("(")[0].split()[0]
        if text is None:
            out[name] = None
        elif base == "enum":
            out[name] = labels(types[name])[int(text) - 1]
        elif base == "set":
            out[name] = ",".join(x for i, x in enumerate(labels(types[name])) if int(text) >> i & 1)
        else:
            out[name] = READ.get(base, str)(text)
    return out


def test_messages_hold_the_truth(shop, sent):
    tables = {name: {} for name in TABLES}
    for m in sent:
        assert set(m) == KEYS and list(m) == sorted(m)
        live = tables.get(f"{m['database']}.{m['table']}")
        for i, texts in enumerate(m["data"] or ()):
            new = row(m["mysqlType"], texts)
            old = {**new, **row(m["mysqlType"], m["old"][i])} if m["type"] == "UPDATE" else new
            if m["type"] != "INSERT":
                assert live.pop(tuple(old[k] for k in m["pkNames"])) == old
            if m["type"] != "DELETE":
                live[tuple(new[k] for k in m["pkNames"])] = new
    assert tables == shop.truth


def test_what_has_no_rows(sent):
    assert [m["sql"] for m in sent if m["isDdl"]] == [t.ddl for t in TABLES.values()]
    beat = sent[-1]
    assert (beat["type"], beat["database"], beat["table"], beat["data"], beat["es"]) == ("UPDATE", "", "", None, 0)


def test_old_of_later_rows_keeps_what_earlier_rows_changed(sent):
    wide = [m for m in sent if m["type"] == "UPDATE" and len(m["data"] or ()) > 1]
    assert wide
    for m in wide:
        names = [set(o) for o in m["old"]]
        assert all(a <= b for a, b in itertools.pairwise(names))
