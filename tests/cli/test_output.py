import json
import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from cdc_platform.cli.output import Lines, Report, Verbatim, clean, printed, show, to_json
from cdc_platform.errors import CdcError, ConfigError, KafkaUnreachable


def shown(capsys: pytest.CaptureFixture[str], data, as_json: bool = False) -> str:
    show(data, as_json)
    return capsys.readouterr().out


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_rows_become_a_table(capsys):
    out = shown(capsys, [{"table": "orders", "rows": 12000}, {"table": "items", "rows": 7, "lag_s": 0.5}])
    assert lines(out) == [["table", "rows", "lag_s"], ["orders", "12,000", "-"], ["items", "7", "0.5", "s"]]


def test_numbers_stand_right(capsys):
    out = shown(capsys, [{"n": 1}, {"n": 1000}])
    assert out.splitlines()[1].rstrip() == "   1"


def test_a_dict_becomes_names_and_values_and_its_lists_of_dicts_tables(capsys):
    out = shown(capsys, {"lake": "/data", "ok": True, "topics": ["a", "b"], "stages": [{"stage": "landing"}]})
    assert out == "lake    /data\nok      yes\ntopics  a, b\n\nstages\nstage\nlanding\n"


def test_nothing_is_said_in_a_word(capsys):
    assert shown(capsys, []).strip() == "nothing"
    assert json.loads(shown(capsys, [], as_json=True)) == []


def test_long_values_are_not_cut_outside_a_terminal(capsys):
    assert "x" * 5000 in shown(capsys, [{"value": "x" * 5000, "other": "y" * 300}])


def test_rows_that_dont_fit_stand_below_each_other_and_are_wrapped_between_words(capsys, monkeypatch):
    words = ["quarantined", "unbelievably", "message"] * 9
    rows = [{"address": "t/0/" + "9" * 60, "path": "/lake/" + "x" * 90, "nothing": None, "reason": " ".join(words)}] * 2
    for columns in ("100", "80", "40"):
        monkeypatch.setenv("COLUMNS", columns)
        out = shown(capsys, {"lake": "/lake", "rows": rows})
        assert [len(line) for line in out.splitlines() if len(line) > int(columns) and " " in line.strip()] <= [107] * 2
        assert not re.search(" $", out, re.M)
        told = out.split()
        assert told.count("/lake/" + "x" * 90) == 2
        assert [w for w in told if w in words] == words * 2
        assert "nothing" not in told


def test_a_long_text_is_wrapped_in_its_column_and_the_table_stays_one(capsys):
    reason = "column amount: the value '12,5' isn't a decimal of 10 digits, as its type says; see types.md for what is"
    out = shown(
        capsys, [{"table": "shop.orders", "state": "stopped", "reason": reason, "rows": n} for n in (1, 20_000)]
    )
    assert all(len(line) <= 100 for line in out.splitlines())
    assert out.splitlines()[0].split() == ["table", "state", "reason", "rows"]
    assert " ".join(out.split()).count("shop.orders stopped column amount:") == 2


def test_wide_characters_count_twice(capsys):
    out = shown(capsys, [{"name": "客户表", "n": 1}, {"name": "ab", "n": 2}])
    assert out.splitlines()[1:] == ["客户表  1", "ab      2"]


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("quarantined", 4.0, "4"),
        ("records", 1234567, "1,234,567"),
        ("port", 9092, "9092"),
        ("offset", 1234567, "1234567"),
        ("seconds", 185.2, "3 min 5 s"),
        ("seconds", 0.254, "0.25 s"),
        ("lag_s", 7_260, "2 h 1 min"),
        ("mb", 0.30000001, "0.3"),
        ("at", datetime(2026, 11, 20, 1, 2, 3, 456789, tzinfo=UTC), "2026-11-20 01:02:03Z"),
        ("amount", Decimal("1.10"), "1.10"),
    ],
)
def test_numbers_and_times_as_people_write_them(capsys, name, value, told):
    assert shown(capsys, {name: value}).strip() == f"{name}  {told}"


def test_data_of_a_users_table_is_shown_as_it_is(capsys):
    at = datetime(2026, 11, 20, 1, 2, 3, 456789)
    out = shown(capsys, Verbatim([{"rows": 1234567, "seconds": 185.0, "at": at, "gone": None, "text": "\x1b[2J"}]))
    assert lines(out)[1] == ["1234567", "185.0", "2026-11-20", "01:02:03.456789", "NULL", "\\x1b[2J"]


def test_lines_that_are_laid_out_stay_so(capsys):
    out = shown(capsys, {"a": 1, "value": Lines(["{", '  "b": "\x1b"', "}"])})
    assert out == 'a  1\n\nvalue\n{\n  "b": "\\x1b"\n}\n'


def test_text_from_the_wire_has_no_power(capsys):
    wire = "[red]x[/red] :smile: \x1b[2J\r\n\x9b31m\u202egnp"
    for data in ([{wire: wire}], {wire: wire}, {"a": [{wire: wire}]}, [wire], wire):
        out = shown(capsys, data)
        assert r"[red]x[/red] :smile: \x1b[2J\x0d\x0a\x9b31m\u202egnp" in out
        assert not set(out) & set("\x1b\r\x9b\u202e")


@given(st.text(st.characters(exclude_categories=()), max_size=50))
def test_clean_text_can_always_be_written_and_keeps_what_is_harmless(text):
    safe = clean(text)
    assert safe.isprintable() or not any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 for c in safe)
    safe.encode()  # lone surrogates can't be
    assert clean(safe) == safe


@pytest.mark.parametrize("text", ["", "orders", "客户 😀", "a\\b", "naïve"])
def test_clean_leaves_ordinary_text(text):
    assert clean(text) == text


def test_json_keeps_every_digit_and_type(capsys):
    data = {
        "decimal": Decimal("123456789012345678901234567890.10"),
        "unsigned": 2**64 - 1,
        "bytes": b"\x00\xff",
        "at": datetime(2026, 11, 20, 1, 2, 3, tzinfo=UTC),
        "day": date(2026, 11, 20),
        "path": Path("/lake"),
        "nan": float("nan"),
        "none": None,
        "flag": False,
        "text": "😀\x1b",
    }
    out = shown(capsys, data, as_json=True)
    assert out.isascii()
    assert "\x1b" not in out
    assert json.loads(out) == {
        "decimal": "123456789012345678901234567890.10",
        "unsigned": 18446744073709551615,
        "bytes": "AP8=",
        "at": "2026-11-20T01:02:03+00:00",
        "day": "2026-11-20",
        "path": "/lake",
        "nan": "nan",
        "none": None,
        "flag": False,
        "text": "😀\x1b",
    }


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(json_values)
def test_json_values_stay_what_they_are(value):
    assert json.loads(json.dumps(to_json(value))) == value


def command_of(raises: CdcError | None = None, result=None) -> typer.Typer:
    app = typer.Typer()

    @app.command()
    @printed
    def command(count: Annotated[int, typer.Option(help="How many.")] = 1):
        """Does it."""
        if raises:
            raise raises
        return result if result is not None else {"count": count}

    return app


def invoke(app: typer.Typer, *args: str):
    return CliRunner().invoke(app, args)


def test_a_command_prints_its_data_as_table_or_json():
    app = command_of()
    assert lines(invoke(app, "--count", "3").stdout) == [["count", "3"]]
    done = invoke(app, "--count", "3", "--json")
    assert (done.exit_code, json.loads(done.stdout)) == (0, {"count": 3})


def test_a_report_decides_the_exit_code_and_is_printed():
    done = invoke(command_of(result=Report({"ok": False}, 1)), "--json")
    assert (done.exit_code, json.loads(done.stdout)) == (1, {"ok": False})


def test_people_may_see_other_than_the_data():
    app = command_of(result=Report({"all": 1}, shown={"short": 2}))
    assert json.loads(invoke(app, "--json").stdout) == {"all": 1}
    assert lines(invoke(app).stdout) == [["short", "2"]]


def test_an_error_goes_to_stderr():
    done = invoke(command_of(raises=ConfigError("sources[0].format", "unknown 'x\x1b'", ["canal", "debezium"])))
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "error: sources[0].format: unknown 'x\\x1b'; valid: canal, debezium\n"


def test_an_error_as_json_has_the_fields():
    done = invoke(command_of(raises=KafkaUnreachable("shop", "127.0.0.1:1", "refused")), "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout) == {
        "error": {
            "type": "KafkaUnreachable",
            "message": "source shop: no answer from Kafka at 127.0.0.1:1: refused",
            "retriable": True,
            "source": "shop",
            "servers": "127.0.0.1:1",
        }
    }


def test_no_colour_reaches_a_pipe():
    code = "from cdc_platform.cli.output import show; show({'a': [{'b': 1}], 'c': 'd'}, False, 'title')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "\x1b" not in done.stdout
    assert "title" in done.stdout


NOISE = """
import ctypes, os, subprocess, sys, warnings, logging
from cdc_platform.cli import app, output

def noisy(config: __import__("pathlib").Path = __import__("pathlib").Path("cdc.yaml")):
    os.write(1, b"a JVM's VACUUM\\n"); os.write(2, b"a JVM's log4j\\n")
    subprocess.run(["sh", "-c", "echo a process; echo a process >&2"], check=True)
    print("a library"); warnings.warn("a library's warning"); logging.getLogger("x").warning("a library's log")
    output.progress("step 1")
    return {"rows": 1}

app.COMMANDS["noisy"] = ("__main__:command", "")
command = output.printed(noisy)
sys.exit(app.run(["noisy", *sys.argv[1:]]))
"""


WORKING = NOISE.replace(
    'output.progress("step 1")',
    """
    with output.working("doing it"):
        time.sleep(0.3)
        print("a library")
        output.progress("step 1")
""",
).replace("import ctypes", "import time, ctypes")


def test_what_is_going_on_is_shown_on_a_terminal_below_the_lines_of_progress(tmp_path):
    ours, theirs = pty.openpty()
    process = subprocess.Popen([sys.executable, "-c", WORKING], stdout=subprocess.PIPE, stderr=theirs, cwd=tmp_path)
    os.close(theirs)
    told = b""
    with suppress(OSError):  # the terminal's end
        while piece := os.read(ours, 10_000):
            told += piece
    os.close(ours)
    out, _ = process.communicate()
    assert (process.returncode, out) == (0, b"rows  1\n")
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", told.decode())
    assert re.search(r"^\W+doing it\r", plain), plain
    assert re.search(r"\rstep 1\r\n\W+doing it", plain), plain
    assert "library" not in plain


@pytest.mark.parametrize("there", [True, False])
def test_what_others_print_goes_into_a_log(tmp_path, there):
    if there:
        (tmp_path / "cdc.yaml").write_text("lake: ./lake")
    done = subprocess.run(
        [sys.executable, "-c", NOISE, "--json"], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, '{\n  "rows": 1\n}\n', "step 1\n")
    log = tmp_path / ".cdc" / "logs" / "cli.log"
    assert log.exists() == there  # no folder is made where nothing is configured
    if there:
        told = log.read_text()
        for who in ("VACUUM", "log4j", "a process\na process", "a library\n", "library's warning", "library's log"):
            assert who in told


def test_whoever_stops_reading_is_no_fault():
    program = "import sys; from cdc_platform.cli.app import main; sys.argv = ['cdc-platform', '--help']; main()"
    done = subprocess.run(
        f'{sys.executable} -c "{program}" | true', shell=True, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
