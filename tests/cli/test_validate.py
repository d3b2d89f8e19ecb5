"""`validate`, and shell completion: what stdout says."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from cdc_platform import tables
from cdc_platform.changes import in_force
from cdc_platform.cli.app import COMMANDS, run
from cdc_platform.config import Config, parse_config
from tests.automation.conftest import schema_history, table_state
from tests.rows import add

ALL = "crm.accounts, crm.orders, crm.tmp_1"
RULES = {
    "include": ["crm.*", "shop.*", "crm.accunts"],
    "exclude": ["crm.tmp_*", "*.bak"],
    "keys": {"crm.accounts": ["id"], "crm.Orders": ["id"]},
    "ddl": {"crm.orders": "stop", "web.*": "stop"},
    "routes": {r"crm\.orders_[0-9]+": "crm.orders"},
}


def made(tmp_path, **source) -> Config:
    feed = {"name": "s", "format": "canal_json", "topics": ["t"], "tables": RULES, **source}
    raw = {"lake": "./lake", "sources": [feed]}
    (tmp_path / "cdc.yaml").write_text(json.dumps(raw))
    return parse_config(raw, tmp_path / "cdc.yaml")


def warnings(config: Config, capsys) -> list[str]:
    assert run(["validate", "--json", "--config", str(config.file)]) == 0
    return json.loads(capsys.readouterr().out)["warnings"]


def changes(config: Config, *names: str) -> None:
    rows: dict[str, Any] = {"db": [n.split(".")[0] for n in names], "table": [n.split(".")[1] for n in names]}
    path = tables.CHANGES.at(config.lake, format="canal_json", source="s")
    rows |= {"schema": pa.nulls(len(names), pa.string()), "kind": ["row"] * len(names)}
    write_deltalake(path, pa.table(rows))


def test_patterns_that_matched_nothing_are_told(tmp_path, capsys):
    config = made(tmp_path)
    assert warnings(config, capsys) == []  # nothing has been seen yet
    schema_history(config, ("s", "crm", "accounts"), ("s", "crm", "orders"))
    table_state(config, "s", "crm.accounts")
    changes(config, "crm.accounts", "crm.orders", "crm.tmp_1")
    assert warnings(config, capsys) == [
        f"sources[0].tables.include: 'shop.*' matched none of the tables seen; seen: {ALL}",
        "sources[0].tables.include: 'crm.accunts' matched none of the tables seen; seen: crm.accounts",
        f"sources[0].tables.exclude: '*.bak' matched none of the tables seen; seen: {ALL}",
        "sources[0].tables.ddl: 'web.*' matched none of the tables seen; seen: crm.accounts, crm.orders",
        "sources[0].tables.keys: no table 'crm.Orders' has been seen; seen: crm.orders",
        "sources[0].tables.routes: 'crm\\\\.orders_[0-9]+' matched none of the tables seen; seen: crm.orders",
    ]


def decoded_with(config: Config, options: dict, number: int, offset: int) -> None:
    source = config.sources[0].model_copy(update={"options": options})
    values = in_force.values(source)
    row = {
        "source": "s",
        "number": number,
        "options": json.dumps(values, sort_keys=True),
        "digest": in_force.digest(values),
        "offsets": [("t/0", offset)] if offset else [],
        "at": datetime(2026, 11, 20, tzinfo=UTC),
    }
    add(config.lake, tables.DECODED_WITH, row)


def test_an_option_that_changed_is_told_before_and_after_the_run(tmp_path, capsys):
    config = made(tmp_path, tables={}, options={"time_zone": "UTC"})
    decoded_with(config, {"time_zone": "Asia/Shanghai"}, 0, 0)
    [before] = warnings(config, capsys)
    assert before.startswith(
        'sources[0].options.time_zone was "Asia/Shanghai" and is "UTC" for messages decoded from now on; rows decoded '
        "before keep the old meaning"
    )
    decoded_with(config, {"time_zone": "UTC"}, 1, 70)
    [after] = warnings(config, capsys)
    assert after.startswith(
        'sources[0].options.time_zone was "Asia/Shanghai" until 2026-11-20 00:00:00Z and is "UTC" since '
        "(t/0 from offset 70)"
    )


def test_an_option_that_changed_back_before_anything_was_decoded_is_no_matter(tmp_path, capsys):
    config = made(tmp_path, tables={}, options={"labels": "number"})
    decoded_with(config, {"labels": "number"}, 0, 0)
    decoded_with(config, {"labels": "label"}, 1, 70)
    decoded_with(config, {"labels": "number"}, 2, 70)
    assert warnings(config, capsys) == []


def test_a_filter_that_is_no_regular_expression_is_told(tmp_path, capsys):
    bridge = {"name": "b", "servers": ["h"], "destination": "d", "topic": "c", "filter": r"crm\..*,shop("}
    raw = {"lake": "./lake", "sources": [{"name": "s", "format": "canal", "topics": ["c"]}], "bridges": [bridge]}
    (tmp_path / "cdc.yaml").write_text(json.dumps(raw))
    [text] = warnings(parse_config(raw, tmp_path / "cdc.yaml"), capsys)
    assert text.startswith("bridges[0].filter: 'shop(' may be no regular expression")


def test_a_section_without_effect_is_told(tmp_path, capsys):
    raw = {"lake": "./lake", "storage": {"region": "eu-west-1"}}
    raw |= {"sources": [{"name": "s", "format": "canal", "topics": ["c"]}]}
    (tmp_path / "cdc.yaml").write_text(json.dumps(raw))
    assert warnings(parse_config(raw, tmp_path / "cdc.yaml"), capsys) == [
        "storage: has no effect: the lake is a folder"
    ]


def test_errors_end_it(tmp_path, capsys):
    (tmp_path / "cdc.yaml").write_text("lake: x\nsources: [{name: 1, format: nope, topics: [t]}]\n")
    assert run(["validate", "--json", "--config", str(tmp_path / "cdc.yaml")]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert {e["key"] for e in error["errors"]} == {"sources[0].name", "sources[0].format"}


def test_a_valid_file_is_told_in_a_line(tmp_path, capsys):
    config = made(tmp_path)
    assert run(["validate", "--config", str(config.file)]) == 0
    assert " ".join(capsys.readouterr().out.split()) == f"{config.file}: valid, 1 source, no warnings"


@pytest.mark.parametrize(
    ("line", "words"),
    [("cdc-platform ", list(COMMANDS)), ("cdc-platform t", ["tables", "topic"]), ("cdc-platform topic ", ["list"])],
)
def test_the_shell_completes_commands(line, words):
    code = (
        "import sys; from cdc_platform.cli.app import main; sys.argv[0] = 'cdc-platform'\n"
        "try: main()\n"
        "finally: print('dagster' in sys.modules or 'pyspark' in sys.modules, file=sys.stderr)"
    )
    told = {
        "_CDC_PLATFORM_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
        "PATH": "/bin:/usr/bin",
    }
    found = subprocess.run([sys.executable, "-c", code], env=told, capture_output=True, text=True, check=False)
    assert set(words) <= set(found.stdout.split())
    assert found.stderr.split() == ["False"]


def test_completion_can_be_installed(capsys):
    assert run(["--help"]) == 0
    assert "--install-completion" in capsys.readouterr().out
