"""The jars: resolved once from ivy.xml by the Ivy that pyspark carries, held to the checksums of jars.lock. Those for a
lake on S3 are fetched only where one is in use.

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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cdc_platform.errors import SetupError
from cdc_platform.setup.java import Java, ensure_java, find_java
from cdc_platform.setup.packaged import in_checkout, packaged, setup_command

IVY_FILE = packaged("ivy.xml")
LOCK_FILE = packaged("jars.lock")
ALWAYS = ("spark", "broker", "ddl")
"""Confs of ivy.xml that every installation needs."""
FOR_STORE = {"s3": "s3"}
"""Kind of store (config/storage.py) → conf with the jars that Spark needs for it."""
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


def differences(folder: Path, locked: dict[str, str], confs: Sequence[str] = ALWAYS) -> list[str]:
    """What keeps the `confs` in `folder` from being exactly what jars.lock says, one phrase per jar; empty: nothing."""
    there, locked = ({n: d for n, d in of.items() if n.split("/")[0] in confs} for of in (checksums(folder), locked))
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


def named_jars(confs: Sequence[str]) -> list[str]:
    """ "conf/name-version.jar" of every dependency of the confs that ivy.xml names itself."""
    found = ET.parse(IVY_FILE).getroot().iter("dependency")  # noqa: S314  our own file
    named = ((d.attrib["conf"].split("->")[0], f"{d.attrib['name']}-{d.attrib['rev']}.jar") for d in found)
    return [f"{conf}/{jar}" for conf, jar in named if conf in confs]


def _ivy_command(java: Java, work: Path, confs: Sequence[str]) -> list[str]:
    ivy = next(iter(_pyspark_jars().glob("ivy-*.jar")), None)
    if ivy is None:
        raise SetupError(f"pyspark's ivy jar is missing: the installation is damaged. Repair it with: {_PIP}")
    return [
        str(java.binary),
        # Ivy would trust ~/.m2 and ~/.ivy2, which other tools may have left half filled.
        f"-Duser.home={work / 'home'}",
        *("-jar", str(ivy), "-cache", str(work / "cache"), "-ivy", str(IVY_FILE)),
        *(("-settings", settings) if (settings := os.environ.get("CDC_IVY_SETTINGS")) else ()),
        *("-confs", *confs, "-types", "jar", "bundle"),
        *("-retrieve", str(work / "out") + "/[conf]/[artifact]-[revision].[ext]"),
    ]


def _try_resolve(command: list[str], work: Path, confs: Sequence[str]) -> str | None:
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
    missing = [name for name in named_jars(confs) if not (work / "out" / name).is_file()]
    if done.returncode == 0 and not missing:
        return None
    lacks = f"lacking {', '.join(missing)}" if missing else f"exit code {done.returncode}"
    return "; ".join([lacks, *dict.fromkeys(line.strip(" :\t") for line in told[:6])])


def resolve(work: Path, java: Java, say: Say, confs: Sequence[str]) -> Path:
    """Runs Ivy for the confs up to three times (repositories have bad moments) and gives the folder with the jars.

    Raises SetupError with Ivy's own words when the last try failed too.
    """
    (work / "home").mkdir()
    command = _ivy_command(java, work, confs)
    problem = None
    for turn in range(1, TRIES + 1):
        if problem:
            say(f"try {turn - 1} of {TRIES} failed ({problem}); again in {_PAUSE_S} s")
            time.sleep(_PAUSE_S)
        problem = _try_resolve(command, work, confs)
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


def ensure_jars(java: Java, say: Say, confs: Sequence[str] = ALWAYS) -> Path:
    """The folder of `jars_dir`, with the confs, which are fetched first unless it holds exactly what jars.lock says.

    Each conf is filled beside and renamed: a killed set-up leaves none half done. Raises SetupError where a jar differs
    from jars.lock.
    """
    target, locked = jars_dir(), read_lock()
    with _one_at_a_time(target.parent):
        lacking = [conf for conf in confs if differences(target, locked, [conf])]
        if not lacking:
            return target
        if (there := [conf for conf in lacking if (target / conf).exists()]) and os.environ.get("CDC_JARS"):
            wrong = differences(target, locked, there)
            raise SetupError(
                f"CDC_JARS={target}: {'; '.join(wrong)}. Without that folder: env -u CDC_JARS {setup_command()}"
            )
        count = sum(name.split("/")[0] in lacking for name in locked)
        say(f"fetching {count} jars into {target} (once; a minute or two)")
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetch-") as temp:
            out = resolve(Path(temp), java, say, lacking)
            if wrong := differences(out, locked, lacking):
                raise SetupError(
                    f"the fetched jars are not those of jars.lock: {'; '.join(wrong)}. Again: {setup_command()}"
                )
            target.mkdir(exist_ok=True)
            for conf in lacking:
                if (target / conf).exists():  # damaged
                    shutil.move(target / conf, Path(temp, f"old-{conf}"))
                (out / conf).rename(target / conf)
    return target


def write_lock(java: Java, say: Say) -> None:
    """Fetches by ivy.xml into a fresh folder and writes the checksums found to jars.lock."""
    with tempfile.TemporaryDirectory() as temp:
        found = checksums(resolve(Path(temp), java, say, _confs()))
    LOCK_FILE.write_text("".join(f"{digest}  {name}\n" for name, digest in found.items()))
    say(f"{len(found)} jars in {LOCK_FILE.name}")


def _missing(conf: str) -> list[str]:
    return [Path(name).name for name in named_jars([conf]) if not (jars_dir() / name).is_file()]


def _installed(conf: str) -> list[Path]:
    """The jars of one `conf`. The first use fetches them into the user's cache; a folder that CDC_JARS names is only
    read."""
    folder = jars_dir()
    missing = _missing(conf)
    if missing and not os.environ.get("CDC_JARS"):
        ensure_jars(find_java(), say, ALWAYS if conf in ALWAYS else (conf,))
        missing = _missing(conf)
    found = sorted((folder / conf).glob("*.jar"))
    if missing or not found:
        how = setup_command() if conf in ALWAYS else f"cdc-platform setup --store {conf}"
        raise SetupError(f"jars are missing in {folder / conf} ({', '.join(missing) or 'all'}). Fetch them with: {how}")
    return found


def artifact(jar: str) -> str:
    """The name of a jar without its version: delta-spark_4.2_2.13-4.4.0.jar is delta-spark_4.2_2.13."""
    return re.sub(r"-\d+\..*$", "", jar)


def spark_jars(store: str = "folder") -> list[str]:
    """Paths for `spark.jars`: Delta and what it needs beyond pyspark's own jars, the platform's log store, and what
    this kind of store needs.

    A jar that pyspark ships in any version is left out: two versions in one JVM fail in odd places.
    Raises SetupError where jars are missing.
    """
    shipped = {artifact(f.name) for f in _pyspark_jars().glob("*.jar")}
    found = [*_installed("spark"), *(_installed(FOR_STORE[store]) if store in FOR_STORE else ())]
    return [*(str(f) for f in found if artifact(f.name) not in shipped), str(packaged("log-store.jar"))]


def log_store_classpath() -> tuple[list[str], list[str]]:
    """Class paths of the compiler of the log store, and of what it is compiled against. Raises SetupError."""
    jars = _pyspark_jars()
    compiler = [str(f) for name in ("commons-compiler", "janino") for f in jars.glob(f"{name}-*.jar")]
    storage = [f for f in _installed("spark") if artifact(f.name) == "delta-storage"]
    return compiler, [str(f) for f in (*jars.glob("hadoop-client-*.jar"), *storage)]


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
