import importlib
import json
import subprocess
import sys

import pytest

from cdc_platform.cli import app as cli
from cdc_platform.cli.app import COMMANDS, run
from cdc_platform.errors import ConfigError, KafkaUnreachable

HEAVY = {"pyspark", "dagster", "pandas", "pyarrow", "deltalake", "confluent_kafka"}


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["broker", "--help"]])
def test_help_imports_nothing_heavy(args):
    code = (
        "import sys, json; from cdc_platform.cli.app import run; code = run(sys.argv[1:]); "
        "print(json.dumps([code, *sorted({m.split('.')[0] for m in sys.modules})]))"
    )
    done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=True)
    code, *modules = json.loads(done.stdout.splitlines()[-1])
    assert code == 0
    allowed = {"confluent_kafka"} if "broker" in args else set()
    assert set(modules) & HEAVY <= allowed


def test_help_lists_every_command(capsys):
    assert run(["--help"]) == 0
    out = capsys.readouterr().out
    for name, (_, text) in COMMANDS.items():
        assert name in out
        assert text in out


def test_the_line_of_a_group_names_all_of_its_commands():
    groups = {name: at for name, (at, _) in COMMANDS.items() if at.endswith(":app")}
    assert "quarantine" in groups
    for name, at in groups.items():
        module, attribute = at.split(":")
        commands = getattr(importlib.import_module(module), attribute).registered_commands
        told = COMMANDS[name][1].rstrip(".").rpartition(": ")[2].split(", ")
        assert {c.name for c in commands} == {text.split()[0] for text in told}, name


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_exists_and_takes_json(name, capsys):
    module, attribute = COMMANDS[name][0].split(":")
    if importlib.util.find_spec(module) is None:
        pytest.skip("not written yet")
    assert hasattr(importlib.import_module(module), attribute)
    assert run([name, "--help"]) == 0
    out = capsys.readouterr().out
    assert "--json" in out or "Commands:" in out


def test_an_unknown_command_is_a_usage_error(capsys):
    assert run(["brokr"]) == 2
    assert "brokr" in capsys.readouterr().err


def test_a_usage_error_as_json(capsys):
    assert run(["broker", "start", "--port", "x", "--json"]) == 2
    told = capsys.readouterr()
    error = json.loads(told.out)["error"]
    assert (error["type"], error["retriable"]) == ("UsageError", False)
    assert "--port" in error["message"]


def test_an_interrupt_is_130(monkeypatch, capsys):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "app", interrupted)
    assert run(["status"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


@pytest.mark.parametrize(
    ("raised", "code", "kind"),
    [
        (KeyboardInterrupt(), 130, "Interrupted"),
        (ConfigError("lake", "is missing"), 2, "ConfigError"),
        (KafkaUnreachable("shop", "h:1", "refused"), 1, "KafkaUnreachable"),
        (ValueError("a fault of ours"), None, "ValueError"),
    ],
)
def test_however_a_command_ends_json_is_all_of_stdout(monkeypatch, capsys, tmp_path, raised, code, kind):
    def fail(*_args, **_how):
        raise raised

    monkeypatch.setattr("cdc_platform.cli.status.load_config", fail)
    if code is None:
        with pytest.raises(ValueError, match="a fault of ours"):  # with its trace: it is to be reported
            run(["status", "--json"])
    else:
        assert run(["status", "--json"]) == code
    assert json.loads(capsys.readouterr().out)["error"]["type"] == kind


def test_help_says_the_exit_codes(capsys):
    assert run(["--help"]) == 0
    assert "Exit codes: 0 done; 1 something needs attention" in " ".join(capsys.readouterr().out.split())
