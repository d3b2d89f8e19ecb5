"""What the pages say without being run: links, commands and their options, keys of cdc.yaml, YAML and JSON, the
generated reference, environment variables. Needs no Spark."""

import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdc_platform.config import Config, Source, parse_config
from cdc_platform.formats import FORMATS
from scripts import reference
from tests.docs.pages import ROOT, Block, Page, pages, parse

PAGES = pages()
BY_NAME = {page.name: page for page in PAGES}
COMMANDS = reference.commands()
OPTIONS = {option for command in COMMANDS.values() for option in reference.options(command)}
OTHERS = {
    "--strict", "--no-data", "--no-deps", "--help", "--install-completion", "--show-completion", "--no-binary",
    "--extra", "--build-arg", "--set",
}  # fmt: skip
"""Options of other tools that pages name by themselves."""

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def blocks(*languages: str) -> list[Block]:
    return [b for page in PAGES for b in page.blocks if b.language in languages]


# -- links --------------------------------------------------------------------------------------------------------


@each_page
def test_every_relative_link_and_anchor_resolves(page: Page):
    broken = []
    for line, link in page.links:
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        file = (page.path.parent / path).resolve() if path else page.path
        name = os.path.relpath(file, ROOT)
        if not file.exists() or (anchor and name in BY_NAME and anchor not in BY_NAME[name].anchors):
            broken.append(f"{page.name}:{line}: {link}")
    assert broken == []


def test_pictures_are_shown_and_small():
    shown = {os.path.normpath(p.path.parent / link) for p in PAGES for _, link in p.links}
    pictures = [p for p in (ROOT / "docs" / "images").rglob("*") if p.is_file()]
    assert [p.name for p in pictures if str(p) not in shown or p.stat().st_size > 200_000] == []


def test_every_page_under_docs_is_in_the_sites_navigation():
    nav = yaml.safe_load(re.sub(r"!!python\S+", "", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))["nav"]

    def files(entry: Any) -> list[str]:
        if isinstance(entry, str):
            return [entry]
        return [f for value in (entry.values() if isinstance(entry, dict) else entry) for f in files(value)]

    assert sorted(files(nav)) == sorted(p.name.removeprefix("docs/") for p in PAGES if p.name.startswith("docs/"))


# -- commands and options -----------------------------------------------------------------------------------------


def wrong_in(text: str) -> list[str]:
    """What is wrong with the `cdc-platform` calls in a line of shell, by the command line's own options."""
    wrong = []
    for call in re.findall(r"(?:^|[\s/(])cdc-platform(?= )([^|;&)\n]*)", text):
        try:
            words = shlex.split(re.sub(r"\[([^\]]*)\]", r"\1", call), comments=True)
        except ValueError:
            words = call.split()
        path: tuple[str, ...] = ()
        while words and (*path, words[0]) in COMMANDS:
            path = (*path, words.pop(0))
        named = [w.partition("=")[0] for w in words if w.startswith("-") and w != "-"]
        if not path and not set(named) & {"--help", "--version"}:
            wrong.append(f"no command: cdc-platform {call.strip()}")
        elif hasattr(COMMANDS[path], "list_commands") and words and not words[0].startswith("-"):
            wrong.append(f"no command: cdc-platform {' '.join([*path, words[0]])}")
        else:
            wrong += [
                f"no option {n} of cdc-platform {' '.join(path)}"
                for n in named
                if n not in reference.options(COMMANDS[path]) | OTHERS
            ]
    return wrong


def test_what_is_wrong_with_a_call_is_found():
    assert wrong_in("cdc-platform status --json") == []
    assert wrong_in("CDC_CONFIG=a.yaml .venv/bin/cdc-platform run [--source shop]  # all") == []
    assert wrong_in("cdc-platform status --wide-open") == ["no option --wide-open of cdc-platform status"]
    assert wrong_in("x | cdc-platform quarantine shwo a/0/1") == ["no command: cdc-platform quarantine shwo"]
    assert wrong_in("cdc-platform stauts") == ["no command: cdc-platform stauts"]


@each_page
def test_every_command_and_option_named_exists(page: Page):
    wrong = []
    for line, code in page.code:
        if re.fullmatch(r"[a-z_]+ <[a-z ]+>", code):
            continue  # an argument and its type, as the reference writes them
        first = code.split(" ")[0]
        called = (
            f"cdc-platform {code}" if " " in code and (first,) in COMMANDS and not code.startswith("run ") else code
        )
        wrong += [f"{page.name}:{line}: {w}" for w in wrong_in(called)]
        if re.fullmatch(r"--[a-z][a-z-]+(?:[ =].*)?", code) and re.split("[ =]", code)[0] not in OPTIONS | OTHERS:
            wrong.append(f"{page.name}:{line}: no command has the option {code}")
    for block in page.blocks:
        if block.language in ("bash", "sh", "console"):
            wrong += [f"{block.where}: {w}" for w in wrong_in(block.text.replace("\\\n", " "))]
    assert wrong == []


@each_page
def test_every_make_target_named_exists(page: Page):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {m for _, code in page.code for m in re.findall(r"^make ([a-z-]+)", code)}
    named |= {
        m for b in page.blocks if b.language in ("bash", "sh", "") for m in re.findall(r"^make ([a-z-]+)", b.text, re.M)
    }
    assert named - targets == set()


# -- cdc.yaml -----------------------------------------------------------------------------------------------------

SOURCE = {"name": "example", "format": "debezium", "topics": ["example"]}
WHOLE = {"lake": "./lake", "kafka": {"bootstrap.servers": "127.0.0.1:9092"}, "sources": [SOURCE]}


def as_config(block: Block, folder: Path) -> Config | None:
    """The block as cdc.yaml, whole or a section of it laid over a small one; None: it is marked as something else.
    Raises ConfigError; AssertionError where it has keys of neither."""
    if "not run" in block.marks or block.marks.get("file", "cdc.yaml") != "cdc.yaml":
        return None
    raw = yaml.safe_load(re.sub(r"^\s*- (?=\{?name:)", lambda m: m[0], block.text))
    if isinstance(raw, list):
        raw = {"sources": raw}
    assert isinstance(raw, dict), f"{block.where}: neither cdc.yaml nor marked"
    if set(raw) <= set(Source.model_fields) - {"kafka"}:
        raw = {"sources": [SOURCE | raw]}
    assert set(raw) <= set(Config.model_fields), f"{block.where}: {set(raw) - set(Config.model_fields)}"
    return parse_config(WHOLE | raw, folder / "cdc.yaml")


@pytest.mark.parametrize("block", blocks("yaml", "yml"), ids=lambda block: block.where)
def test_yaml_is_valid_configuration(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in set(re.findall(r"\$\{([A-Za-z_]\w*)\}", block.text)):
        monkeypatch.setenv(name, "https://alerts.example.com/hook" if "URL" in name else "from-the-environment")
    list(yaml.safe_load_all(block.text))
    as_config(block, tmp_path)


@pytest.mark.parametrize("block", blocks("json", "jsonl"), ids=lambda block: block.where)
def test_json_is_json(block: Block):
    for text in block.text.splitlines() if block.language == "jsonl" else [block.text]:
        json.loads(text)


def config_keys() -> dict[str, set[str]]:
    """Last word of each section (`tables`) → its keys; the empty word: all keys, options of formats too."""
    found: dict[str, set[str]] = {"": set(Config.model_fields)}
    for title, _, keys in reference.sections(Config.model_json_schema()):
        section = re.sub(r"[`\[\]]", "", title).rpartition(".")[2]
        found.setdefault(section, set()).update(k["key"] for k in keys)
        found[""] |= {k["key"] for k in keys}
    for format_ in FORMATS.values():
        found.setdefault("options", set()).update(format_.options.model_fields)
    from cdc_platform.automation.table_assets import SnapshotsConfig  # run configuration, in the same notation

    found[""] |= found["options"] | set(SnapshotsConfig.model_fields)
    return found


_FREE = {"kafka", "conf", "options"}
"""Sections that hold any property."""


@each_page
def test_every_key_of_cdc_yaml_named_exists(page: Page):
    """`tables.include`, `sources[].follow_s`, and `on_lost_offsets: accept`."""
    keys, wrong = config_keys(), []
    for line, code in page.code:
        path = re.fullmatch(r"(?:sources(?:\[\])?\.)?([a-z_]+)\.([a-z_]+)", code)
        if path and path[1] in keys and path[1] not in _FREE and path[2] not in keys[path[1]]:
            wrong.append(f"{page.name}:{line}: {code}")
        pair = re.fullmatch(r"([a-z_]+): (?:[a-z_0-9]+|\[.*\]|\{.*\})", code)
        if pair and pair[1] not in keys[""]:
            wrong.append(f"{page.name}:{line}: {code}")
    allowed = {"spark.jars", "spark.sql"}
    assert [w for w in wrong if w.rpartition(" ")[2] not in allowed] == []


def test_the_formats_page_names_every_option_and_its_default():
    text = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")

    def told_in(section):
        rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|([^|]*)\|", section, re.MULTILINE)
        return {option: default.strip() for names, default in rows for option in re.findall(r"\w+", names)}

    sections = dict(re.findall(r"^## ([\w ]+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    for name in FORMATS:
        told = told_in(sections["Options of every format"]) | told_in(sections[name])
        fields = FORMATS[name].options.model_fields
        assert set(told) == set(fields), name
        for option, field in fields.items():
            shown = told[option].strip("`").removeprefix("–")
            assert shown in (str(field.default), str(field.default).lower()) or not shown, (name, option)
            assert shown or not field.default, (name, option)


def test_the_monitoring_page_names_every_check():
    from cdc_platform.automation import accounting, beside, checks, overview, reporting, shadows, table_events

    text = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    table = text.partition("## What to watch")[2].partition("\n## ")[0]
    told = set(re.findall(r"`([a-z_]+)` of ", table)) | set(re.findall(r"check `([a-z_]+)`", table))
    names = {
        accounting.ACCOUNTED,
        accounting.NOTHING_MISSING,
        accounting.NOTHING_HELD,
        checks.HEARTBEAT,
        overview.EQUALS_SOURCE,
        shadows.SHADOW,
        beside.HAS_ALL_CHANGES,
    }
    names |= {reporting.NO_TABLE_STOPPED, *table_events.CHECKS}
    assert names <= told
    assert told - names <= {"lag", "lag_seconds", "options_changed"}


def test_the_monitoring_page_names_a_tables_metadata():
    files = [ROOT / "cdc_platform" / "automation" / f"{name}.py" for name in ("table_events", "evidence")]
    source = "".join(file.read_text(encoding="utf-8") for file in files)
    text = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    rows = text.partition("## On a table's page")[2].partition("\n## ")[0]
    told = {name for row in re.findall(r"^\| (`.*?) \|", rows, re.MULTILINE) for name in re.findall(r"`([^`]+)`", row)}
    assert {name for name in told if f'"{name}"' not in source} == set()


# -- generated and derived pages ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", reference.written())
def test_the_reference_is_what_the_code_says(name: str):
    """On purpose no rewriting here: `python -m scripts.reference` (or `make docs`) does that."""
    assert (reference.FOLDER / name).read_text(encoding="utf-8") == reference.written()[name]


_READS = re.compile(
    r"""environ(?:\.get|\.setdefault|\.pop)?[\[(]\s*["']([A-Z][A-Z0-9_]+)["']|envvar="([A-Z0-9_]+)"|getenv\(["']([A-Z0-9_]+)""",
)
_CONSTANT = re.compile(r'^_?[A-Z_]+ = "([A-Z][A-Z0-9]*_[A-Z0-9_]+)"', re.MULTILINE)


def variables_read() -> set[str]:
    """Environment variables that the package reads by name."""
    found: set[str] = set()
    for file in sorted((ROOT / "cdc_platform").rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        found |= {name for names in _READS.findall(text) for name in names if name}
        if "environ" in text:
            found |= set(_CONSTANT.findall(text))
    return found


def test_every_environment_variable_read_is_documented_and_no_other():
    text = (ROOT / "docs" / "reference" / "environment.md").read_text(encoding="utf-8")
    ours = text.partition("## Read by libraries")[0]
    told = set(re.findall(r"^\| `([A-Z][A-Z0-9_]+)`", ours, re.MULTILINE))
    assert told == variables_read()


# -- the parser itself --------------------------------------------------------------------------------------------


def test_marks_belong_to_the_next_block_only():
    page = parse("<!-- not run: why -->\n```bash\nx\n```\n\ntext\n\n```bash\ny\n```\n", "p.md")
    assert [(b.line, b.marks) for b in page.blocks] == [(2, {"not run": "why"}), (8, {})]


def test_anchors_are_githubs():
    page = parse("# A `real` Kafka, with SASL & TLS\n\n## Twice\n\n## Twice\n", "p.md")
    assert page.anchors == {"a-real-kafka-with-sasl--tls", "twice", "twice-1"}
