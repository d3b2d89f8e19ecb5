"""What is wrong in cdc.yaml is told at once, on the command line too; cron, patterns and keys are checked."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from dagster import DagsterInvalidDefinitionError, ScheduleDefinition
from dagster import job as dagster_job

from cdc_platform.cli.app import run
from cdc_platform.config import parse_config
from cdc_platform.errors import ConfigError, ConfigErrors
from tests.config.test_config import raw, refused

MANY = """\
lake: gs://bucket/lake
catch_up_cron: every day
kafka: {sasl.password: hunter2-canary, bootstrap.servers: "${NOT_SET_ANYWHERE}:9092"}
sources:
  - name: shop
    format: tencent_dts
    topics: [t]
    tables: {include: [crm], keys: {accounts: [id]}}
    options: {time_zone: Mars/Base, timezone: UTC}
  - name: 1shop
    format: oracle
"""
KEYS = [
    "catch_up_cron",
    "kafka.bootstrap.servers",
    "kafka.sasl.password",
    "lake",
    "sources[0].options.time_zone",
    "sources[0].options.timezone",
    "sources[0].tables.include",
    "sources[0].tables.keys",
    "sources[1].format",
    "sources[1].name",
]


@pytest.fixture
def wrong(tmp_path, monkeypatch) -> Path:
    monkeypatch.delenv("NOT_SET_ANYWHERE", raising=False)
    file = tmp_path / "cdc.yaml"
    file.write_text(MANY)
    return file


def test_all_errors_are_told_at_once_as_json(wrong, capsys):
    assert run(["status", "--json", "--config", str(wrong)]) == 2
    out = capsys.readouterr().out
    error = json.loads(out)["error"]
    assert sorted(e["key"] for e in error["errors"]) == KEYS
    assert error["type"] == "ConfigErrors"
    assert "hunter2" not in out


def test_all_errors_are_told_at_once_line_by_line(wrong, capsys):
    assert run(["status", "--config", str(wrong)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"error: {len(KEYS)} errors in the configuration"
    assert sorted(line.strip().partition(": ")[0] for line in lines[1:]) == KEYS
    assert not any("hunter2" in line for line in lines)


def test_one_error_is_told_alone():
    error = refused(raw({"start": "now"}))
    assert not isinstance(error, ConfigErrors)


def test_a_variable_that_is_not_set_causes_no_further_errors(monkeypatch):
    monkeypatch.delenv("NOT_SET_ANYWHERE", raising=False)
    error = refused(raw({"follow_s": "${NOT_SET_ANYWHERE}"}))
    assert (error.key, "NOT_SET_ANYWHERE" in error.problem) == ("sources[0].follow_s", True)


@pytest.mark.parametrize("value", ["hunter2-canary", "x"])
def test_values_from_the_environment_are_not_shown(monkeypatch, value):
    monkeypatch.setenv("ZONE", value)
    error = refused(raw({"options": {"time_zone": "${ZONE}"}}))
    assert "unknown time zone ${ZONE}" in error.problem


CRONS = [
    "every day",
    "* * * *",
    "60 * * * *",
    "*/10 * * * *",
    "0 3 * * 7",
    "0 3 * * 1-5",
    "@daily",
    "@reboot",
    "0 0 30 2 *",
    "* * * * * *",
    "0 0 L * *",
    "5/60 * * * *",
    "0 24 * * *",
    "0/90 * * * *",
    "0 5/20 * * 3",
    "1-5/2 0,12 1 */2 *",
    "",
    "R R * * *",
]


@dagster_job
def nothing():
    pass


@pytest.mark.parametrize("cron", CRONS)
@pytest.mark.parametrize("key", ["catch_up_cron", "maintenance.cron"])
def test_a_schedule_is_taken_where_dagster_takes_it(cron, key):
    mapping = raw(catch_up_cron=cron) if key == "catch_up_cron" else raw(maintenance={"cron": cron})
    try:
        ScheduleDefinition(cron_schedule=cron, job=nothing)
    except (DagsterInvalidDefinitionError, ValueError):
        error = refused(mapping)
        assert error.key == key
        assert "five fields" in error.problem
    else:
        parse_config(mapping)


def test_usual_schedules_are_checked_without_dagster():
    code = (
        "import sys; from cdc_platform.config import parse_config; "
        "parse_config({'lake': 'x', 'catch_up_cron': '*/5 * * * *', 'maintenance': {'cron': '30 2 * * 6'},"
        " 'sources': [{'name': 'a', 'format': 'canal', 'topics': ['t']}]}); "
        "sys.exit('dagster' in sys.modules or 'pyspark' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


LISTS = ("include", "exclude", "history", "typed_changes")


@pytest.mark.parametrize("field", [*LISTS, "key_collation", "ddl", "owners", "tags", "descriptions"])
def test_a_pattern_that_can_match_no_table_is_refused(field):
    values = {"key_collation": "UNICODE_CI", "ddl": "stop", "owners": ["team:a"], "tags": {}, "descriptions": "x"}

    def tables(*patterns):
        value = list(patterns) if field in LISTS else dict.fromkeys(patterns, values[field])
        return {"tables": {field: value}}

    error = refused(raw(tables("shop.*", "crm", "crm.")))
    assert error.key == f"sources[0].tables.{field}"
    assert error.problem.startswith("'crm', 'crm.' can match no table; valid: patterns of db.table, such as 'crm.*'")
    parse_config(raw(tables("*", "crm*", "crm.*", "crm.a", "c?m.[ab]", "*.a")))


@pytest.mark.parametrize("name", ["accounts", "crm.", ".accounts", ""])
def test_keys_need_the_name_of_a_table(name):
    error = refused(raw({"tables": {"keys": {name: ["id"]}}}))
    assert (error.key, "valid: db.table" in error.problem) == ("sources[0].tables.keys", True)


def test_keys_need_columns():
    assert "has no columns" in refused(raw({"tables": {"keys": {"crm.accounts": []}}})).problem


@pytest.mark.parametrize("format", ["debezium", "canal", "canal_json", "dataworks"])
def test_types_of_columns_need_the_name_of_a_table(format):
    error = refused(raw({"format": format, "options": {"columns": {"orders": {"id": "bigint"}}}}))
    assert (error.key, "'orders': no table's name; valid: db.table" in error.problem) == (
        "sources[0].options.columns",
        True,
    )


@pytest.mark.parametrize(
    ("format", "option"),
    [("debezium", "dtle_time_zone"), *((f, "time_zone") for f in ("tencent_dts", "canal", "dataworks", "tdsql"))],
)
def test_an_unknown_zone_is_refused(format, option):
    error = refused(raw({"format": format, "options": {option: "Asia/Shanghaii"}}))
    assert (error.key, "valid: IANA names such as Asia/Shanghai" in error.problem) == (
        f"sources[0].options.{option}",
        True,
    )


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("lake: a\nlake: b\nsources: []\n", "line 2, column 1"),
        ("lake: a\nkafka: {a: 1}\nsources:\n  - {name: x, name: y}\n", "line 4, column 15"),
    ],
)
def test_a_key_that_stands_there_twice_is_refused(tmp_path, text, place, capsys):
    file = tmp_path / "cdc.yaml"
    file.write_text(text)
    assert run(["status", "--config", str(file)]) == 2
    assert f"stands here twice at {place}" in capsys.readouterr().err


def test_a_file_that_is_no_utf8_is_refused(tmp_path):
    from cdc_platform.config import load_config

    file = tmp_path / "cdc.yaml"
    file.write_bytes(b"lake: \xff\n")
    with pytest.raises(ConfigError, match="is not UTF-8: at byte 6"):
        load_config(file)
