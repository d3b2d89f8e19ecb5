"""Debezium's DDL parsers (MySQL's, and MariaDB's for what that refuses) through py4j; no Java of ours. A program:
a line of JSON with statements in, a line with the changes out, until nothing comes for a while (`ddl_process`). Lists
grow: one that begins as another that was read goes on where that ended.

In a small JVM beside Spark's, not in it: over Spark Connect that one is out of reach, and its class path should not
grow.
"""

import gc
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple
from itertools import accumulate
from typing import Any

from cdc_platform.mysql.ddl import Statement
from cdc_platform.mysql.ddl_model import Model
from cdc_platform.setup.jars import ddl_classpath
from cdc_platform.setup.java import find_java

_JVM = ["-Xmx256m", "-Xss8m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
_IDLE_S = 60
_MOST = 20_000
"""Statements after which the process ends: what parsers keep of texts grows with them."""
_KEPT = 4
"""Lists of statements that can go on: a source has two, and there may be some sources."""
_ROOM = 4_000_000
"""Characters of statements in all lists that can go on: of each Java keeps some 20 bytes, and has 256 MB."""


def main() -> None:
    """Standard input → standard output, line by line; each tells of an empty server what its statements make of it."""
    with _java() as jvm:
        done, kept = 0, list[_Reading]()
        while done < _MOST and select.select([sys.stdin.buffer], [], [], _IDLE_S)[0]:
            if not (line := sys.stdin.buffer.readline()):
                break
            asked = json.loads(line)
            fold, statements = asked["fold"], asked["statements"]
            same = max((k for k in kept if k.is_begin_of(fold, statements)), key=lambda k: len(k.read), default=None)
            reading = same or _Reading(jvm, fold)
            done += len(statements) - len(reading.read)
            reading.go_on(statements)
            json.dump(reading.changes, sys.stdout)
            sys.stdout.write("\n")
            sys.stdout.flush()
            kept = _fitting([reading, *(k for k in kept if k is not reading)][:_KEPT])
            del same, reading
            gc.collect()  # what the others hold in Java goes


def _fitting(kept: "list[_Reading]") -> "list[_Reading]":
    """As many of these as there is room for, the first in any case."""
    sums = accumulate(k.size for k in kept)
    return [k for i, (k, all_) in enumerate(zip(kept, sums, strict=True)) if not i or all_ <= _ROOM]


@contextmanager
def _java() -> Iterator[Any]:
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

    classpath = ddl_classpath()
    launched: Any = launch_gateway(
        classpath=classpath,
        jarpath=classpath.partition(os.pathsep)[0],
        javaopts=_JVM,
        java_path=str(find_java().binary),
        die_on_exit=True,  # the server ends with its standard input, so also when Python is killed
        enable_auth=True,
        return_proc=True,
    )
    port, token, process = launched
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    try:
        yield gateway.jvm
    finally:
        gateway.shutdown()  # not close(): Java objects freed later would still be told to a server that is gone
        process.stdin.close()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class _Reading:
    """A list of statements, as far as it was read: each as it was asked, and which tables that it names were there
    before; the changes so far."""

    def __init__(self, jvm: Any, fold: bool):
        self.fold = fold
        self.read: list[tuple[list[Any], frozenset[tuple[str, str]]]] = []
        self.changes: list[tuple[Any, ...]] = []
        self.size = 0
        self._model = Model(jvm, fold)

    def is_begin_of(self, fold: bool, statements: list[list[Any]]) -> bool:
        """Whether they begin as those that were read, or the same comes of them."""
        if fold != self.fold or len(statements) < len(self.read):
            return False
        return all(self._same(*read, asked) for read, asked in zip(self.read, statements, strict=False))

    def _same(self, read: list[Any], there: frozenset[tuple[str, str]], asked: list[Any]) -> bool:
        """What is known of a table says nothing where the statements before have told of it (Model._know)."""
        if read == asked:
            return True
        names = {self._model.folded(db, table) for _, _, _, known in (read, asked) for db, table, _ in known}
        return read[:3] == asked[:3] and names <= there

    def go_on(self, statements: list[list[Any]]) -> None:
        """Reads those behind."""
        for asked in statements[len(self.read) :]:
            at, db, sql, known = asked
            statement = Statement(db, sql, tuple(map(tuple, known)))
            self.size += len(sql)
            self.read.append((asked, self._model.there(statement)))
            self.changes += map(astuple, self._model.apply(at, statement))


if __name__ == "__main__":
    main()
