"""A page's Python, in a process of its own: a Spark Connect client in the tests' process would turn each later
`spark.read` there into a remote one.

Run as a program: reads lines of JSON ({"code", "page", "line"}) and answers each with {"printed", "error"}. What a
block defines, later ones use.
"""

import contextlib
import io
import json
import subprocess
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Interpreter:
    """The process, as the tests use it."""

    process: subprocess.Popen[str]

    @classmethod
    def start(cls, folder: Path, env: dict[str, str], remote: str, **names: str) -> "Interpreter":
        """names: what the pages' code finds defined, beside `spark`: a client of the server at `remote`."""
        root = Path(__file__).parents[2]
        command = [sys.executable, "-m", "tests.docs.interpreter", remote, json.dumps(names)]
        env = {**env, "PYTHONPATH": str(root)}
        return cls(
            subprocess.Popen(command, cwd=folder, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        )

    def run(self, code: str, page: str = "", line: int = 0) -> str:
        """What the code prints. Raises AssertionError with the traceback that it ends with."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"code": code, "page": page, "line": line}) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        assert answer, f"the process of {page} ended"
        done = json.loads(answer)
        assert not done["error"], done["error"]
        return done["printed"]

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


def main(remote: str, names: str) -> None:
    """Runs what the lines of standard input tell."""
    from pyspark.sql import SparkSession

    answers, sys.stdout = sys.stdout, sys.stderr
    known: dict[str, Any] = {**json.loads(names), "spark": SparkSession.builder.remote(remote).create()}
    for asked in map(json.loads, sys.stdin):
        printed, error = io.StringIO(), ""
        try:
            with contextlib.redirect_stdout(printed):
                exec(compile("\n" * asked["line"] + asked["code"], asked["page"], "exec"), known)
        except Exception:  # noqa: BLE001 - whatever a page's code raises is the test's to show
            error = traceback.format_exc()
        answers.write(json.dumps({"printed": printed.getvalue(), "error": error}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
