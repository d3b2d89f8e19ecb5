"""Every code block of the pages is run: `bash` by bash, `python` in one process a page, `sql` by the engine that is
named before it. What can't be run here is marked on the page, with its reason."""

import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.docs.conftest import Desk
from tests.docs.interpreter import Interpreter
from tests.docs.pages import Block, Page, pages

RUN = ("bash", "sh", "python", "sql")
STATIC = ("yaml", "yml", "json", "jsonl", "text", "toml", "ini", "dockerfile", "protobuf", "diff")
PAGES = pages()
QUICK_START = "docs/quickstart.md"

_REASONS = 12
"""Characters of a reason, at least: `not run: later` is none."""


_NOW_AND_THEN = {
    f"docs/{n}.md"
    for n in ("backup", "erase", "explain", "history", "monitoring", "reading", "reconcile", "replay", "shadow")
}
"""Pages whose commands have tests of their own, and take long."""


OF_SHOP = ("README.md", "docs/operations.md")
"""Pages that speak of the source `shop` alone."""


def by_page(blocks: list[Block]) -> Iterator[Any]:
    for block in blocks:
        yield pytest.param(block, marks=[pytest.mark.thorough] if block.page in _NOW_AND_THEN else [], id=block.where)


def unmarked(*, quick_start: bool) -> list[Block]:
    return [
        block
        for page in PAGES
        if (page.name == QUICK_START) is quick_start
        for block in page.blocks
        if block.language in RUN and "not run" not in block.marks
    ]


def output_of(block: Block) -> Block | None:
    """The block right after it on its page that shows what it prints."""
    page = next(p for p in PAGES if p.name == block.page)
    following = [b for b in page.blocks if b.line > block.line][:1]
    return next((b for b in following if "output" in b.marks), None)


def test_every_block_is_run_checked_or_an_exception_with_a_reason(capsys: pytest.CaptureFixture[str]):
    exceptions = [b for page in PAGES for b in page.blocks if "not run" in b.marks]
    unknown = [b.where for page in PAGES for b in page.blocks if b.language not in (*RUN, *STATIC)]
    assert unknown == [], "a block names its language: bash, python, sql, yaml, json, text"
    assert [b.where for b in exceptions if len(b.marks["not run"]) < _REASONS] == []
    run = unmarked(quick_start=False) + unmarked(quick_start=True)
    with capsys.disabled():
        said = [f"{block.where}: {block.marks['not run']}" for block in exceptions]
        sys.stdout.write(f"\n{len(run)} blocks are run, {len(said)} not:\n  " + "\n  ".join(said) + "\n")


def differs(shown: str, printed: str) -> list[str]:
    """Lines that a page shows and that weren't printed, in this order; `…` stands for anything, blanks for blanks."""
    lines, missing = [" ".join(line.split()) for line in printed.splitlines()], []
    for line in filter(None, (" ".join(text.split()) for text in shown.splitlines())):
        pattern = re.compile(".*".join(re.escape(part) for part in line.split("…")))
        at = next((i for i, text in enumerate(lines) if pattern.fullmatch(text)), None)
        if at is None:
            missing.append(line)
        else:
            lines = lines[at + 1 :]
    return missing


def test_what_differs_from_a_shown_output_is_found():
    assert differs("a  b\n…\nc … e", "a b\nx\nc d e\n") == []
    assert differs("a\nb", "b\na") == ["b"]


def run_bash(block: Block, desk: Desk) -> None:
    done = desk.bash(block.text)
    told = f"{block.where}: exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    wanted = re.match(r"\d*", block.marks.get("exit", ""))
    assert done.returncode == int(wanted[0] if wanted and wanted[0] else 0), told
    if shown := output_of(block):
        assert differs(desk.filled(shown.text), done.stdout) == [], f"{shown.where}: printed was\n{done.stdout}"


def run_python(block: Block, desk: Desk, page: Interpreter) -> None:
    printed = page.run(desk.filled(block.text), block.page, block.line)
    if shown := output_of(block):
        assert differs(desk.filled(shown.text), printed) == [], f"{shown.where}:\n{printed}"


def run_sql(block: Block, desk: Desk, page: Interpreter) -> None:
    engine = block.marks.get("engine", "spark")
    for statement in filter(str.strip, desk.filled(block.text).split(";")):
        if engine == "duckdb":
            import duckdb

            duckdb.connect().execute(statement).fetchall()
        else:
            assert engine == "spark", f"{block.where}: engine {engine}"
            page.run(f"spark.sql({statement!r}).collect()", block.page, block.line)


Interpreters = Callable[[str, Desk], Interpreter]


@pytest.fixture(scope="module")
def interpreters(spark_server: Any) -> Iterator[Interpreters]:
    """`interpreters(page, desk)`: the one process of a page."""
    started: dict[str, Interpreter] = {}

    def of(page: str, desk: Desk) -> Interpreter:
        if page not in started:
            remote = f"{spark_server.remote}/;token={spark_server.token}"
            started[page] = Interpreter.start(desk.folder, desk.env, remote, lake=desk.lake, source="bank")
        return started[page]

    yield of
    for one in started.values():
        one.stop()


@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.parametrize("block", by_page(unmarked(quick_start=False)))
def test_a_block_runs(block: Block, request: pytest.FixtureRequest, interpreters: Interpreters):
    desk: Desk = request.getfixturevalue("desk" if block.page in OF_SHOP else "whole_desk")
    if block.language == "python":
        run_python(block, desk, interpreters(block.page, desk))
    elif block.language == "sql":
        run_sql(block, desk, interpreters(block.page, desk))
    else:
        run_bash(block, desk)


def quick_start() -> Page | None:
    return next((p for p in PAGES if p.name == QUICK_START), None)


@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.thorough
@pytest.mark.skipif(quick_start() is None, reason="there is no quick start")
def test_the_quick_start_works_from_an_empty_folder(own_desk: Desk, interpreters: Interpreters):
    page = quick_start()
    assert page is not None
    for block in page.blocks:
        if "not run" in block.marks or "output" in block.marks:
            continue
        if name := block.marks.get("file"):
            (own_desk.folder / name).write_text(own_desk.filled(block.text))
        elif block.language == "python":
            run_python(block, own_desk, interpreters(block.page, own_desk))
        elif block.language in ("bash", "sh"):
            run_bash(block, own_desk)
