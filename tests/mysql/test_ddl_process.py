"""The process of the DDL parsers: kept for the next question, and never in the way."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from cdc_platform.errors import SetupError
from cdc_platform.mysql import ddl_process
from cdc_platform.mysql.ddl_process import _Parsers


def asked(parsers: _Parsers, table: str = "t") -> list[Any]:
    return parsers.ask({"statements": [[0, "d", f"create table {table} (a int)", []]], "fold": False})


def tables(changes: list[Any]) -> list[str]:
    return [c[2] for c in changes]


@pytest.fixture
def parsers() -> Any:
    parsers = _Parsers()
    yield parsers
    parsers.end()


def pid(parsers: _Parsers) -> int:
    assert parsers._process is not None
    return parsers._process.process.pid


def test_each_question_begins_with_an_empty_server(parsers: _Parsers) -> None:
    assert tables(asked(parsers, "a")) == ["a"]
    first = pid(parsers)
    changes = parsers.ask({"statements": [[0, "d", "alter table a add b int", []]], "fold": False})
    assert [c[3] for c in changes] == [None], "what it was before isn't known"
    assert pid(parsers) == first


GROWING = [
    "create table a (id int primary key, v varchar(5))",
    "create table b like a",
    "alter table a modify v varchar(9), add c int",
    "alter table nonsense is no clause",
    "rename table a to x, b to a, x to b",
    "use e",
    "alter table a drop primary key",
    "drop table b",
    "create table b (q int unique not null)",
    "alter table b character set latin1",
    "alter table b add t text, drop index q",
]


def of(*sql: str, known: dict[int, list[list[str]]] | None = None, fold: bool = False) -> dict[str, Any]:
    return {"statements": [[at, "d", text, (known or {}).get(at, [])] for at, text in enumerate(sql)], "fold": fold}


def alone(request: dict[str, Any]) -> list[Any]:
    parsers = _Parsers()
    try:
        return parsers.ask(request)
    finally:
        parsers.end()


@pytest.mark.thorough
def test_a_list_that_grew_goes_on_as_if_it_were_read_anew(parsers: _Parsers) -> None:
    whole = alone(of(*GROWING))
    for end in range(1, len(GROWING) + 1):
        assert parsers.ask(of(*GROWING[:end])) == [c for c in whole if c[0] < end]
    other = of(*GROWING[:3], "drop table b", *GROWING[4:])
    assert parsers.ask(other) == alone(other) != whole, "it begins as another, and goes on otherwise"
    assert parsers.ask(of(*GROWING)) == whole
    assert tables(parsers.ask(of("create table A (a int)", fold=True))) == ["a"]
    assert tables(parsers.ask(of("create table A (a int)"))) == ["A"]


def test_what_is_known_of_a_table_counts_until_a_statement_told_of_it(parsers: _Parsers) -> None:
    known = {0: [["d", "t", "create table t (a int)"]]}
    sql = ("alter table t add b int", "alter table t add c int")
    assert [c[3] for c in parsers.ask(of(*sql))] == [None, None]
    told = parsers.ask(of(*sql, known=known))
    assert [[c[0] for c in change[3]] for change in told] == [["a", "b"], ["a", "b", "c"]]
    more = {**known, 1: [["d", "t", "create table t (other int)"]]}
    assert parsers.ask(of(*sql, known=more)) == told == alone(of(*sql, known=more))
    assert [c[3] for c in parsers.ask(of(*sql))] == [None, None]


def test_what_was_read_is_not_read_again(parsers: _Parsers) -> None:
    asked(parsers)  # Java has started
    many = [f"create table t{n} (id int primary key, v varchar(5), w decimal(9,2))" for n in range(200)]

    def seconds(request: dict[str, Any]) -> float:
        start = time.monotonic()
        parsers.ask(request)
        return time.monotonic() - start

    first = seconds(of(*many))
    assert seconds(of(*many, "alter table t7 add x int")) < first / 3


def test_one_that_was_killed_is_started_again(parsers: _Parsers) -> None:
    asked(parsers)
    os.kill(pid(parsers), signal.SIGKILL)
    assert tables(asked(parsers)) == ["t"]


def test_one_that_ended_for_want_of_questions_is_started_again(
    parsers: _Parsers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "impatient.py"
    program.write_text("from cdc_platform.mysql import ddl_parser\nddl_parser._IDLE_S = 0.1\nddl_parser.main()\n")
    real = subprocess.Popen
    with monkeypatch.context() as patched:
        patched.setattr(ddl_process.subprocess, "Popen", lambda _, **more: real([sys.executable, str(program)], **more))
        asked(parsers)
    first = parsers._process
    assert first is not None
    assert first.process.wait(10) == 0
    assert tables(asked(parsers)) == ["t"]


def test_an_answer_that_nobody_waited_for_is_not_the_next_ones(parsers: _Parsers) -> None:
    asked(parsers)

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        many = [[i, "d", f"create table t{i} ({', '.join(f'c{j} int' for j in range(99))})", []] for i in range(99)]
        with pytest.raises(KeyboardInterrupt):
            parsers.ask({"statements": many, "fold": False})
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert tables(asked(parsers, "other")) == ["other"]


def test_questions_of_several_threads_have_their_own_answers(parsers: _Parsers) -> None:
    found: dict[str, list[str]] = {}
    names = [f"t{i}" for i in range(8)]
    threads = [threading.Thread(target=lambda n=n: found.update({n: tables(asked(parsers, n))})) for n in names]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == {n: [n] for n in names}


def test_a_fork_has_its_own(parsers: _Parsers) -> None:
    asked(parsers)
    child = os.fork()
    if child == 0:
        try:
            os._exit(tables(asked(parsers, "forked")) != ["forked"])
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert tables(asked(parsers, "after")) == ["after"]


def test_it_ends_with_the_process_that_asked_however_that_ends() -> None:
    program = (
        "import os, signal; from cdc_platform.mysql.ddl_process import PARSERS as p;"
        "p.ask({'statements': [], 'fold': False}); print(p._process.process.pid, flush=True);"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=False)
    left, end = int(done.stdout), time.monotonic() + 20
    while Path(f"/proc/{left}/cmdline").exists() and Path(f"/proc/{left}/cmdline").read_bytes():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_why_it_does_not_start_is_told(parsers: _Parsers, monkeypatch: pytest.MonkeyPatch) -> None:
    real = subprocess.Popen
    program = [sys.executable, "-c", "raise SystemExit('no Java')"]
    monkeypatch.setattr(ddl_process.subprocess, "Popen", lambda _, **more: real(program, **more))
    with pytest.raises(SetupError, match="the DDL parsers don't start: no Java"):
        asked(parsers)
