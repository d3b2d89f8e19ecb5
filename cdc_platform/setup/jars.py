"""The jars: resolved once from ivy.xml by the Ivy that pyspark carries, held to the checksums of jars.lock.

They live in a folder per content of ivy.xml under the user's cache, shared by all installations of this user; CDC_JARS
names another folder. They are fetched by `make setup`, by `cdc-platform setup`, or by the first command that needs
them. CDC_IVY_SETTINGS names an Ivy settings file, for networks that reach only a mirror of their own.
`python -m cdc_platform.setup.jars --write-lock` renews jars.lock.
"""

import argparse
import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cdc_platform.errors import SetupError
from cdc_platform.setup.java import Java, ensure_java, find_java
from cdc_platform.setup.packaged import in_checkout, packaged, setup_command

IVY_FILE = packaged("ivy.xml")
LOCK_FILE = packaged("jars.lock")
TRIES = 3
_PAUSE_S = 5
_RESOLVE_TIMEOUT_S = 1200
_PIP = "make setup" if in_checkout() else "pip install --force-reinstall cdc-platform"

Say = Callable[[str], None]


def say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201  runs before the platform is set up


def jars_dir() -> Path:
    """The folder with one subfolder of jars per `conf` of ivy.xml. It need not exist yet."""
    if own := os.environ.get("CDC_JARS"):
        return Path(own).expanduser().absolute()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "cdc-platform" / "jars" / hashlib.sha256(IVY_FILE.read_bytes()).hexdigest()[:16]


def read_lock() -> dict[str, str]:
    """jars.lock as {"conf/file.jar": sha256 in hex}; its lines are those of `sha256sum`."""
    pairs = (line.split(maxsplit=1) for line in LOCK_FILE.read_text().splitlines() if line.strip())
    return {name.strip(): digest for digest, name in pairs}


def checksums(folder: Path) -> dict[str, str]:
    """{"conf/file.jar": sha256 in hex} of all jars below `folder`."""
    files = sorted(folder.glob("*/*.jar"))
    return {f.relative_to(folder).as_posix(): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}


def differences(folder: Path, locked: dict[str, str]) -> list[str]:
    """What keeps `folder` from being exactly what jars.lock says, one phrase per jar; empty: nothing."""
    there = checksums(folder)
    return [
        *(f"{name} is missing" for name in sorted(locked.keys() - there.keys())),
        *(f"{name} is not in jars.lock" for name in sorted(there.keys() - locked.keys())),
        *(f"{name} has another checksum" for name in sorted(there) if locked.get(name, there[name]) != there[name]),
    ]


def _pyspark_jars() -> Path:
    spec = importlib.util.find_spec("pyspark")  # finds, doesn't import
    if spec is None or spec.origin is None:
        raise SetupError(f"pyspark is not installed. Install it with: {_PIP}")
    return Path(spec.origin).parent / "jars"


def _confs() -> list[str]:
    return [c.attrib["name"] for c in ET.parse(IVY_FILE).getroot().iter("conf")]  # noqa: S314  our own file


def named_jars() -> list[str]:
    """ "conf/name-version.jar" of every dependency that ivy.xml names itself."""
    found = ET.parse(IVY_FILE).getroot().iter("dependency")  # noqa: S314  our own file
    return [f"{d.attrib['conf'].split('->')[0]}/{d.attrib['name']}-{d.attrib['rev']}.jar" for d in found]


def _ivy_command(java: Java, work: Path) -> list[str]:
    ivy = next(iter(_pyspark_jars().glob("ivy-*.jar")), None)
    if ivy is None:
        raise SetupError(f"pyspark's ivy jar is missing: the installation is damaged. Repair it with: {_PIP}")
    return [
        str(java.binary),
        # Ivy would trust ~/.m2 and ~/.ivy2, which other tools may have left half filled.
        f"-Duser.home={work / 'home'}",
        *("-jar", str(ivy), "-cache", str(work / "cache"), "-ivy", str(IVY_FILE)),
        *(("-settings", settings) if (settings := os.environ.get("CDC_IVY_SETTINGS")) else ()),
        *("-confs", *_confs(), "-types", "jar", "bundle"),
        *("-retrieve", str(work / "out") + "/[conf]/[artifact]-[revision].[ext]"),
    ]


def _try_resolve(command: list[str], work: Path) -> str | None:
    """One run of Ivy; the reason when it failed."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=_RESOLVE_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no end after {_RESOLVE_TIMEOUT_S} s"
    told = re.findall(r"^.*(?:FAILED|UNRESOLVED|not found|ERROR|Exception).*$", done.stdout + done.stderr, re.M)
    missing = [name for name in named_jars() if not (work / "out" / name).is_file()]
    if done.returncode == 0 and not missing:
        return None
    lacks = f"lacking {', '.join(missing)}" if missing else f"exit code {done.returncode}"
    return "; ".join([lacks, *dict.fromkeys(line.strip(" :\t") for line in told[:6])])


def resolve(work: Path, java: Java, say: Say) -> Path:
    """Runs Ivy up to three times (repositories have bad moments) and gives the folder with the jars.

    Raises SetupError with Ivy's own words when the last try failed too.
    """
    (work / "home").mkdir()
    command = _ivy_command(java, work)
    problem = None
    for turn in range(1, TRIES + 1):
        if problem:
            say(f"try {turn - 1} of {TRIES} failed ({problem}); again in {_PAUSE_S} s")
            time.sleep(_PAUSE_S)
        problem = _try_resolve(command, work)
        if problem is None:
            return work / "out"
    raise SetupError(f"the jars could not be fetched: {problem}. Once the network is back: {setup_command()}")


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = open(folder / ".lock", "w")  # noqa: SIM115  closed below
    except OSError as error:
        raise SetupError(
            f"the jars can't be kept in {folder} ({error.strerror}). Name another folder in CDC_JARS, and then: "
            f"{setup_command()}"
        ) from None
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)  # given back when the process ends, however it ends
        yield


def ensure_jars(java: Java, say: Say) -> Path:
    """The folder of `jars_dir`, fetched first unless it holds exactly what jars.lock says.

    Filled beside and renamed: a killed set-up leaves nothing half done. Raises SetupError where a jar differs
    from jars.lock.
    """
    target, locked = jars_dir(), read_lock()
    with _one_at_a_time(target.parent):
        wrong = differences(target, locked)
        if not wrong:
            return target
        if target.exists() and os.environ.get("CDC_JARS"):
            raise SetupError(
                f"CDC_JARS={target}: {'; '.join(wrong)}. Without that folder: env -u CDC_JARS {setup_command()}"
            )
        say(f"fetching {len(locked)} jars into {target} (once; a minute or two)")
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetch-") as temp:
            out = resolve(Path(temp), java, say)
            if wrong := differences(out, locked):
                raise SetupError(
                    f"the fetched jars are not those of jars.lock: {'; '.join(wrong)}. Again: {setup_command()}"
                )
            if target.exists():  # damaged
                shutil.move(target, Path(temp, "old"))
            out.rename(target)
    return target


def write_lock(java: Java, say: Say) -> None:
    """Fetches by ivy.xml into a fresh folder and writes the checksums found to jars.lock."""
    with tempfile.TemporaryDirectory() as temp:
        found = checksums(resolve(Path(temp), java, say))
    LOCK_FILE.write_text("".join(f"{digest}  {name}\n" for name, digest in found.items()))
    say(f"{len(found)} jars in {LOCK_FILE.name}")


def _missing(conf: str) -> list[str]:
    named = [name for name in named_jars() if name.startswith(f"{conf}/")]
    return [Path(name).name for name in named if not (jars_dir() / name).is_file()]


def _installed(conf: str) -> list[Path]:
    """The jars of one `conf`. The first use fetches them into the user's cache; a folder that CDC_JARS names is only
    read."""
    folder = jars_dir()
    missing = _missing(conf)
    if missing and not os.environ.get("CDC_JARS"):
        ensure_jars(find_java(), say)
        missing = _missing(conf)
    found = sorted((folder / conf).glob("*.jar"))
    if missing or not found:
        raise SetupError(
            f"jars are missing in {folder / conf} ({', '.join(missing) or 'all'}). Fetch them with: {setup_command()}"
        )
    return found


def artifact(jar: str) -> str:
    """The name of a jar without its version: delta-spark_4.2_2.13-4.4.0.jar is delta-spark_4.2_2.13."""
    return re.sub(r"-\d+\..*$", "", jar)


def spark_jars() -> list[str]:
    """Paths for `spark.jars`: Delta, the Kafka source and what they need beyond pyspark's own jars.

    A jar that pyspark ships in any version is left out: two versions in one JVM fail in odd places.
    Raises SetupError where jars are missing.
    """
    shipped = {artifact(f.name) for f in _pyspark_jars().glob("*.jar")}
    return [str(f) for f in _installed("spark") if artifact(f.name) not in shipped]


def broker_classpath() -> str:
    """The class path of the embedded Kafka. Raises SetupError where jars are missing."""
    return os.pathsep.join(str(f) for f in _installed("broker"))


def ddl_classpath() -> str:
    """The class path of the DDL parsers and of py4j's server. Raises SetupError where jars are missing."""
    return os.pathsep.join(map(str, [*_pyspark_jars().glob("py4j-*.jar"), *_installed("ddl")]))


def main() -> int:
    parser = argparse.ArgumentParser(description="Fetches the jars that Spark and the embedded Kafka need.")
    parser.add_argument("--write-lock", action="store_true", help="renew jars.lock from ivy.xml")
    try:
        java = ensure_java(say)
        if parser.parse_args().write_lock:
            write_lock(java, say)
        ensure_jars(java, say)
    except SetupError as error:
        say(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
