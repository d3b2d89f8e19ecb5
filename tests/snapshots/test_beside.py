"""Histories and typed changes of many tables: a round with nothing new asks little of a store for them."""

import json
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from deltalake import DeltaTable, Field
from deltalake.schema import PrimitiveType

from cdc_platform.config import Config
from cdc_platform.formats.events import columns_json
from cdc_platform.lake import delta_table, log_files, new_tables, stores
from cdc_platform.lake.beside import KEPT, KINDS
from cdc_platform.lake.store import commit_name
from cdc_platform.snapshots import beside
from cdc_platform.snapshots.apply import beside as written
from cdc_platform.snapshots.beside import Kind
from cdc_platform.snapshots.row_history import HISTORIES
from cdc_platform.snapshots.schema import shapes
from cdc_platform.snapshots.schema.columns import columns_of
from cdc_platform.snapshots.schema.history import History
from cdc_platform.snapshots.target import Target
from cdc_platform.snapshots.typed_changes import TYPED_CHANGES
from cdc_platform.tables import BESIDE_STATE, CHANGELOG, MADE_FOR, SCHEMA_HISTORY, Name, Table, name_columns
from tests.lakes import forget_all

pytestmark = pytest.mark.s3

NAMES: list[Name] = [("shop", f"t{n}") for n in range(12)]
KINDS_KEPT = [HISTORIES, TYPED_CHANGES]
SPARK: Any = None
"""Where nothing is new, it isn't asked."""
DELAY_S = 0.5
FOLDERS = "(?:/|%2F)s(?:/|%2F)shop"


@pytest.fixture
def lake(make_config: Callable[..., Config], on_s3: Callable[[Config], Config]) -> Config:
    """A lake in a bucket: some tables, each with a history and typed changes that have all changes."""
    tables = {kind.name: ["shop.*"] for kind in KINDS_KEPT}
    config = on_s3(make_config([{"name": "s", "format": "canal", "topics": ["t"], "tables": tables}]))
    root, source = stores.lake(config), config.source("s")
    for table in (SCHEMA_HISTORY, CHANGELOG, BESIDE_STATE):
        new_tables.create(table.at(root), table)
    text = columns_json([{"name": n, "type": "bigint", "key": n == "id"} for n in ("id", "a")])
    for name in NAMES:
        columns = columns_of(source, name, text)
        new_tables.create(Target.of(config, "s", *name).snapshot, shapes.snapshot("s", name, columns))
        for kind in KINDS_KEPT:
            shape = written.shape(columns, [0, 0, *([kind.form] if kind.form else ())])
            made: Table = kind.table("s", name, columns)
            made = replace(made, settings={**made.settings, MADE_FOR: shape})
            new_tables.create(KINDS[kind.name].path.of(root, "s", name), made)
    for kind in KINDS_KEPT:
        of = {"source": "s", "kind": kind.name, "number": 0, "state": KEPT}
        delta_table.append_rows(BESIDE_STATE.at(root), [{**of, **name_columns(n)} for n in NAMES])
    forget_all()  # a process of its own
    return config


def kept(config: Config, kind: Kind) -> list[Name]:
    """What a run with nothing new changed of it."""
    source = config.source("s")
    tables = {n: {"state": "live", "rebuild": 0} for n in NAMES}
    return beside.keep(SPARK, config, source, History(SPARK, config, source), tables, kind)


def asked(requests: list[str]) -> Counter[str]:
    """Requests of the tables' folders, by their kind."""
    return Counter(m[1] for r in requests if (m := re.search(f"([a-z_]+){FOLDERS}", r)))


@pytest.mark.parametrize("kind", KINDS_KEPT, ids=lambda k: k.name)
def test_a_round_with_nothing_new_looks_at_each_table_once_and_at_many_at_a_time(
    s3: Any, lake: Config, kind: Kind
) -> None:
    s3.reset()
    assert kept(lake, kind) == []
    assert asked(s3.reset()) == dict.fromkeys(("snapshots", kind.name), 3 * len(NAMES))
    assert kept(lake, kind) == []
    assert asked(s3.reset()) == dict.fromkeys(("snapshots", kind.name), len(NAMES))
    s3.fault("delay", path=f"{kind.name}{FOLDERS}", times=1000, seconds=DELAY_S)
    began = time.monotonic()
    assert kept(lake, kind) == []
    assert time.monotonic() - began < DELAY_S * len(NAMES) / 2


@pytest.mark.parametrize("kind", KINDS_KEPT, ids=lambda k: k.name)
def test_what_others_did_to_tables_is_seen(lake: Config, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Name] = []
    monkeypatch.setattr(beside._Keeper, "anew", lambda _, name: made.append(name))
    assert (kept(lake, kind), made) == ([], [])
    root = stores.lake(lake)
    for name, noted in ((NAMES[3], ""), (NAMES[4], json.dumps([[1, 0], []]))):
        path = KINDS[kind.name].path.of(root, "s", name)
        [told] = [a["metaData"] for a in log_files.actions(path, 0) if "metaData" in a]
        told = {**told, "configuration": {**told["configuration"], MADE_FOR: noted}}
        assert path.put_new(commit_name(1), log_files.encoded([{"metaData": told}]))
    snapshot = Target.of(lake, "s", *NAMES[5]).snapshot
    table = DeltaTable(snapshot.uri(), storage_options=snapshot.options)
    table.alter.add_columns([Field("b", PrimitiveType("long"))])
    kept(lake, kind)
    assert made == [NAMES[3], NAMES[4], NAMES[5]]
