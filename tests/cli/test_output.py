import json
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from cdc_platform.cli.output import Report, clean, printed, show, to_json
from cdc_platform.errors import CdcError, ConfigError, KafkaUnreachable


def shown(capsys: pytest.CaptureFixture[str], data, as_json: bool = False) -> str:
    show(data, as_json)
    return capsys.readouterr().out


def lines(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_rows_become_a_table(capsys):
    out = shown(capsys, [{"table": "orders", "rows": 12000}, {"table": "items", "rows": 7, "lag_s": 0.5}])
    assert lines(out) == [["table", "rows", "lag_s"], ["orders", "12000", "-"], ["items", "7", "0.5"]]


def test_numbers_stand_right(capsys):
    out = shown(capsys, [{"n": 1}, {"n": 1000}])
    assert out.splitlines()[1].rstrip() == "   1"


def test_a_dict_becomes_names_and_values_and_its_lists_of_dicts_tables(capsys):
    out = shown(capsys, {"lake": "/data", "ok": True, "topics": ["a", "b"], "rooms": [{"room": "landing"}]})
    assert lines(out) == [
        ["lake", "/data"],
        ["ok", "yes"],
        ["topics", "a,", "b"],
        [],
        ["rooms"],
        ["room"],
        ["landing"],
    ]


def test_nothing_is_said_in_a_word(capsys):
    assert shown(capsys, []).strip() == "nothing"
    assert json.loads(shown(capsys, [], as_json=True)) == []


def test_long_values_are_not_cut_outside_a_terminal(capsys):
    assert "x" * 5000 in shown(capsys, [{"value": "x" * 5000, "other": "y" * 300}])


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
    assert (done.exit_code, done.stdout) == (1, "")
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
