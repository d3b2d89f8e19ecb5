"""What `shadow status` tells of comparisons that were made, and its exit code."""

import json

import pytest

from cdc_platform.cli.app import run as command
from cdc_platform.shadow import kept

COUNTS = dict.fromkeys(("only_of", "only_by", "differing", "unsettled"), 0)
EQUAL = {"state": "equal"}
LATE = {"state": "behind", "unsettled": 2}
WAITS = {"state": "behind", "reason": "b: quarantine holds 1 row"}
APART = {"state": "not_compared", "reason": "b has no such table"}
DIFFERS = {"state": "different", "only_of": 1}


@pytest.mark.parametrize(
    ("tables", "code", "equal"),
    [
        ([], 0, False),
        ([EQUAL], 0, True),
        ([EQUAL, LATE], 0, True),
        ([EQUAL, WAITS], 1, False),
        ([WAITS], 1, False),
        ([APART], 1, False),
        ([DIFFERS, EQUAL], 1, False),
    ],
)
def test_equal_is_what_was_judged(tmp_path, monkeypatch, capsys, tables, code, equal):
    sources = [{"name": n, "format": "canal_json", "topics": [n]} for n in ("a", "b")]
    (tmp_path / "cdc.yaml").write_text(
        json.dumps(
            {"lake": "lake", "kafka": {"bootstrap.servers": "127.0.0.1:1"}, "sources": sources}
            | {"shadow": {"of": "a", "by": "b"}}
        )
    )
    own = {"source": "a", "by": "b", "db": "d", "schema": None, "number": 0, "gtid": "g:1", "rows_of": None}
    rows = {
        ("d", f"t{i}"): {**own, **COUNTS, "table": f"t{i}", "reason": None, "not_compared": [], **told}
        for i, told in enumerate(tables)
    }
    monkeypatch.setattr(kept, "last", lambda config, pair: rows)
    assert command(["shadow", "status", "--samples", "0", "--config", str(tmp_path / "cdc.yaml"), "--json"]) == code
    [told] = json.loads(capsys.readouterr().out)
    assert (told["equal"], told["waiting"]) == (equal, tables.count(WAITS))
