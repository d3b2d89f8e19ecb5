"""Finds a Java that Spark and Kafka run on. `python -m cdc_platform.setup.java` installs one where it is missing
(stdlib only: set-up runs it before any package is there)."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from cdc_platform.errors import SetupError
from cdc_platform.setup import apt
from cdc_platform.setup.packaged import in_checkout, setup_command

MIN_JAVA = 17  # Spark 4 and Kafka 4 both dropped older ones
PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless", "default-jre-headless")
_JVM_ROOT = Path("/usr/lib/jvm")


@dataclass(frozen=True)
class Java:
    """`binary`: the java program; `home`: the JAVA_HOME that leads to it; `version`: as 17."""

    binary: Path
    home: Path
    version: int


def parse_version(text: str) -> int | None:
    """The release that `java -version` told: "17.0.15" is 17, "1.8.0_392" is 8; None: it told none."""
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found.group(1)) if found else None


def _candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home, "bin", "java")
    if on_path := shutil.which("java"):
        yield Path(on_path)
    # Debian keeps several side by side, and `java` may still point at an old one.
    yield from sorted(_JVM_ROOT.glob("*/bin/java"), reverse=True)


@lru_cache(maxsize=32)
def _probe(binary: Path) -> Java | None:
    try:
        done = subprocess.run([str(binary), "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = parse_version(done.stderr + done.stdout)
    if done.returncode or version is None:
        return None
    real = binary.resolve()
    return Java(real, real.parent.parent, version)


def find_java() -> Java:
    """The first of JAVA_HOME, `java` on PATH and /usr/lib/jvm that is new enough.

    Raises SetupError naming the ones that are too old, and the command that installs one.
    """
    old = []
    for binary in _candidates():
        java = _probe(binary)
        if java and java.version >= MIN_JAVA:
            return java
        if java:
            old.append(f"{java.binary} is Java {java.version}")
    found = f" ({'; '.join(dict.fromkeys(old))})" if old else ""
    # A checkout's set-up installs it; an installed package never changes the system.
    command = setup_command() if in_checkout() else apt.command(PACKAGES)
    raise SetupError(f"no Java {MIN_JAVA} or newer found{found}. Install it with: {command}")


def java_env() -> dict[str, str]:
    """Environment variables that make Spark's launch scripts use the Java of `find_java`."""
    return {"JAVA_HOME": str(find_java().home)}


def ensure_java(say: Callable[[str], None]) -> Java:
    """`find_java`, installing one first where none is there. Raises SetupError with the command."""
    try:
        return find_java()
    except SetupError as missing:
        problem = str(missing).split(". Install")[0]
    apt.install(PACKAGES, problem, say)
    _probe.cache_clear()
    return find_java()


def main() -> int:
    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)  # noqa: T201  runs before rich is there

    try:
        java = ensure_java(say)
    except SetupError as error:
        say(f"error: {error}")
        return 1
    say(f"Java {java.version} at {java.home}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
