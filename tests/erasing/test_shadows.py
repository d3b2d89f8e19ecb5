"""What comparisons of two feeds noted of a subject goes with it, whichever of the two it is erased in."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cdc_platform.erasing.run import Erasure
from cdc_platform.erasing.shadows import Noted
from cdc_platform.explain.scan import Alikes
from cdc_platform.lake import erasing, stores
from cdc_platform.mysql.types import parse_type
from cdc_platform.shadow.errors import ShadowRefused
from tests.erasing.bytes import holding
from tests.erasing.people import MAIL, PEOPLE, SECRET, lake
from tests.shadow.conftest import db, feeds
from tests.shadow.test_run import named, without
from tests.shadow.world import BY, OF

__all__ = ["db", "feeds"]


def noted(*rows: tuple[str, str, str]) -> pa.RecordBatch:
    """Rows of SHADOW_DIFFERENCES: by, table, key."""
    told = [{"by": by, "db": "shop", "schema": None, "table": table, "key": key} for by, table, key in rows]
    schema = pa.schema([(c, pa.string()) for c in ("by", "db", "schema", "table", "key")])
    return pa.RecordBatch.from_pylist(told, schema)


def test_a_key_is_known_however_it_is_spelled():
    types = {"id": parse_type("int"), "at": parse_type("datetime(3)"), "code": parse_type("varchar(9)")}
    key = {"id": "7", "at": "2026-01-01 00:00:00.500", "code": "1.10"}
    batch = noted(
        ("b", "Orders", '{"ID":"7","at":"2026-01-01 00:00:00.5","code":"1.10","more":null}'),
        ("b", "orders", '{"id":"7","at":"2026-01-01 00:00:00.5","code":"1.1"}'),
        ("b", "orders", '{"id":"77","at":"2026-01-01 00:00:00.5","code":"1.10"}'),
        ("b", "orders", '{"id":null,"at":"2026-01-01 00:00:00.5","code":"1.10"}'),
        ("b", "others", '{"id":"7","at":"2026-01-01 00:00:00.5","code":"1.10"}'),
        ("c", "orders", '{"id":"7","at":"2026-01-01 00:00:00.5","code":"1.10"}'),
    )
    alike = Alikes({name: type_.family for name, type_ in types.items()})
    work = Noted(frozenset({("shop", "orders")}), [key], types, alike)
    assert np.nonzero(work.mine(batch))[0].tolist() == [0, 5]
    work = Noted(frozenset({("shop", "orders")}), [key], types, alike, by="c")
    assert np.nonzero(work.mine(batch))[0].tolist() == [5]
    assert work.erased(batch, work.mine(batch)).num_rows == 5


@pytest.mark.parametrize(
    ("type_", "told", "kept"),
    [("bit(1)", "1", "true"), ("bit(1)", "0", "false"), ("bit(9)", "257", "257"), ("tinyint(1)", "1", "true")],
)
def test_a_key_of_bits_is_known_as_a_snapshot_has_it(type_, told, kept):
    parsed = parse_type(type_)
    others = [k for k in ("true", "false", "257") if k != kept]
    batch = noted(*(("b", "flags", json.dumps({"f": k, "id": "7"})) for k in (kept, *others)))
    key = {"f": told, "id": "7"}
    work = Noted(frozenset({("shop", "flags")}), [key], {"f": parsed}, Alikes({"f": parsed.family}))
    assert np.nonzero(work.mine(batch))[0].tolist() == [0]


@pytest.mark.thorough
@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.oracle
@pytest.mark.timeout(600)
def test_differences_of_a_subject(feeds):
    w = feeds("tencent_dts", "canal")
    w.create(t := "shadowed_people", PEOPLE)
    w.create(other := "shadowed_other", PEOPLE)
    w.run(*(f"INSERT INTO {t} VALUES ({i}, 'person {i}', NULL, NULL)" for i in range(4)))
    w.run(f"INSERT INTO {t} VALUES (7, '{SECRET}', '{MAIL}', NULL)")
    w.send(OF, without(t, 2))
    w.send(BY, named(t, 7, f"{SECRET} too"))
    w.pass_on(other)
    w.compare()
    assert [(row[1], row[2]) for row in w.open()] == [("2", "only_by"), ("7", "differs")]

    def erase(source: str) -> dict[str, Any]:
        found = Erasure.of(w.config, w.config.source(source), f"oracle.{t}", "7", follow=False, told=lambda _: None)
        assert any("brings the same database" in doubt for doubt in found.plan()["doubts"])
        done = found.erase(w.spark)
        assert any("brings the same database" in doubt for doubt in done["proof"]["doubts"])
        return done

    done = erase(OF)
    assert (done["proof"]["left"], done["rows"]["shadow_differences"]) == (0, 1)
    assert holding(lake(w) / "shadow_differences", SECRET, MAIL) == []
    w.compare()
    assert [(row[1], row[2]) for row in w.open()] == [("2", "only_by"), ("7", "only_by")]
    assert holding(lake(w) / "shadow_differences", SECRET)

    erasing.decide(stores.lake(w.config), BY, [], number=0)
    with pytest.raises(ShadowRefused, match=f"an erasure of source {BY} was begun"):
        w.compare()
    erasing.done(stores.lake(w.config), BY)
    done = erase(BY)
    assert (done["proof"]["left"], done["rows"]["shadow_differences"]) == (0, 1)
    assert holding(lake(w), SECRET, MAIL) == []
    w.compare()
    assert [(row[1], row[2]) for row in w.open()] == [("2", "only_by")]
