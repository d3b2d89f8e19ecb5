"""The wheel: what it declares, what it holds, and that it works outside the checkout."""

import ast
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import cdc_platform
from cdc_platform.setup import jars
from cdc_platform.setup.java import find_java

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
_EXTRA_OF = {
    "boto3": "glue",
    "botocore": "glue",
    "matplotlib": "demo",
    "polars": "frames",
    "duckdb": "frames",
    "dagster_slack": "slack",
    "slack_sdk": "slack",
    "prometheus_client": "metrics",
}
"""Imports that only an extra declares: the command that needs one says so."""


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def names(requirements: list[str]) -> set[str]:
    return {normalized(re.split(r"[\[<>=~! ]", r)[0]) for r in requirements}


def imported() -> dict[str, set[str]]:
    """Top-level modules of others that the package imports, each with the files that do."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "cdc_platform").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            else:
                modules = [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
            for module in modules:
                top = module.split(".")[0]
                if top not in sys.stdlib_module_names and top != "cdc_platform":
                    found.setdefault(top, set()).add(str(path.relative_to(ROOT)))
    return found


def test_every_import_is_declared():
    providers = importlib.metadata.packages_distributions()
    declared = {None: names(PROJECT["dependencies"])}
    declared |= {extra: names(some) for extra, some in PROJECT["optional-dependencies"].items()}
    undeclared = {
        module: sorted(files)
        for module, files in imported().items()
        if not {normalized(p) for p in providers.get(module, [])} & declared[_EXTRA_OF.get(module)]
    }
    assert undeclared == {}


def test_dependencies_are_ranges_that_the_lock_is_in():
    from packaging.requirements import Requirement

    lock = (ROOT / "requirements.lock").read_text()
    locked = {normalized(n): v for n, v in re.findall(r"^([\w.-]+)==(\S+)", lock, re.M)}
    runtime = (ROOT / "deploy" / "requirements.lock").read_text()
    assert {n: locked.get(normalized(n)) for n, v in re.findall(r"^([\w.-]+)==(\S+)", runtime, re.M)} == dict(
        re.findall(r"^([\w.-]+)==(\S+)", runtime, re.M)
    )
    for text in [*PROJECT["dependencies"], *(r for some in PROJECT["optional-dependencies"].values() for r in some)]:
        requirement = Requirement(text)
        assert requirement.specifier.contains(locked[normalized(requirement.name)]), text
        operators = {spec.operator for spec in requirement.specifier}
        assert operators in ({">=", "<"}, {"=="}), text


def test_the_checkouts_dagster_yaml_is_the_packages():
    assert (ROOT / "dagster.yaml").read_text() == (ROOT / "cdc_platform" / "data" / "dagster.yaml").read_text()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    build = out / "build"  # beside the checkout: setuptools leaves its own folders where it builds
    build.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE", "cdc_platform"):
        if (ROOT / name).exists():
            (build / name).symlink_to(ROOT / name)
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(out), str(build)],
        check=True,
    )
    (found,) = out.glob("*.whl")
    return found


def test_the_wheel_holds_what_the_package_needs(wheel):
    assert wheel.name == f"cdc_platform-{cdc_platform.__version__}-py3-none-any.whl"
    there = set(zipfile.ZipFile(wheel).namelist())
    data = {f"cdc_platform/data/{name}" for name in ("ivy.xml", "jars.lock", "dagster.yaml")}
    assert data | {"cdc_platform/py.typed", "cdc_platform/kafka/broker/log4j2.properties"} <= there
    sources = {str(p.relative_to(ROOT)) for p in (ROOT / "cdc_platform").rglob("*.py")}
    assert sources <= there
    assert {name.split("/")[0] for name in there} == {
        "cdc_platform",
        f"cdc_platform-{cdc_platform.__version__}.dist-info",
    }


@pytest.fixture(scope="module")
def unpacked(wheel, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site-packages")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


def outside(unpacked: Path, cwd: Path, code: str, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs code against the wheel's package, not the checkout's, in a folder that isn't a checkout."""
    around = {k: v for k, v in os.environ.items() if k not in ("CDC_JARS", "DAGSTER_HOME", "CDC_CONFIG")}
    return subprocess.run(
        [sys.executable, "-c", code, *args],
        cwd=cwd,
        env=around | {"PYTHONPATH": str(unpacked)} | env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


CLI = "import sys; from cdc_platform.cli.app import run; sys.exit(run(sys.argv[1:]))"


def test_the_version_is_told_outside_the_checkout(unpacked, tmp_path):
    done = outside(unpacked, tmp_path, CLI, "--version")
    assert (done.returncode, done.stdout.strip()) == (0, cdc_platform.__version__)


def test_jars_are_found_outside_the_checkout(unpacked, tmp_path):
    code = "import json; from cdc_platform.setup import jars; print(json.dumps([jars.__file__, *jars.spark_jars()]))"
    done = outside(unpacked, tmp_path, code)
    assert done.returncode == 0, done.stderr
    file, *found = json.loads(done.stdout)
    assert Path(file).parent == unpacked / "cdc_platform" / "setup"
    own = unpacked / "cdc_platform" / "data"
    expected = [own / Path(j).name if Path(j).name == "log-store.jar" else Path(j) for j in jars.spark_jars()]
    assert list(map(Path, found)) == expected
    named = outside(unpacked, tmp_path, code, CDC_JARS=str(jars.jars_dir()))
    assert json.loads(named.stdout)[1:] == found


def test_the_first_use_fetches_jars_into_the_users_cache(unpacked, tmp_path):
    """Ivy is a script here that copies the jars that this machine already has."""
    java = tmp_path / "jvm" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        '#!/bin/sh\nif [ "$1" = -version ]; then echo \'openjdk version "17.0.1"\' >&2; exit; fi\n'
        f'for last; do :; done; out="${{last%/\\[conf\\]*}}"; mkdir -p "$out"; cp -r {jars.jars_dir()}/* "$out"\n'
    )
    java.chmod(0o755)
    env = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "JAVA_HOME": str(tmp_path / "jvm")}
    code = "from cdc_platform.setup import jars; print(jars.broker_classpath())"
    first, second = outside(unpacked, tmp_path, code, **env), outside(unpacked, tmp_path, code, **env)
    assert first.returncode == 0, first.stderr
    assert re.fullmatch(r"fetching \d+ jars into \S+ \(once; a minute or two\)\n", first.stderr)
    assert second.stderr == ""
    paths = first.stdout.strip().split(os.pathsep)
    assert all(path.startswith(str(tmp_path / "cache")) and Path(path).is_file() for path in paths)


def test_a_missing_java_is_told_with_the_command_that_installs_it(unpacked, tmp_path):
    code = "from pathlib import Path; from cdc_platform.setup import java; java._JVM_ROOT = Path('/none'); " + CLI
    done = outside(unpacked, tmp_path, code, "setup", "--json", PATH="/none", JAVA_HOME="/none")
    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["type"]) == (2, "SetupError")
    assert "no Java 17 or newer found" in error["message"]
    assert "apt-get install -y openjdk-17-jre-headless" in error["message"]


@pytest.mark.thorough
def test_without_a_dagster_yaml_the_packages_limits_hold(unpacked, tmp_path):
    code = (
        "import json, sys; from pathlib import Path; from cdc_platform.config import load_config; "
        "from cdc_platform.automation.instance import open_instance\n"
        "with open_instance(load_config(Path('cdc.yaml'))) as i:\n"
        "    print(json.dumps([i.run_retries_max_retries, i.telemetry_enabled, i.get_settings('concurrency')]))"
    )
    source = "{name: a, format: debezium, topics: [t]}"
    (tmp_path / "cdc.yaml").write_text(f"lake: ./lake\nkafka: {{bootstrap.servers: 'h:1'}}\nsources: [{source}]\n")
    for env in ({}, {"DAGSTER_HOME": str(tmp_path / "home")}):
        done = outside(unpacked, tmp_path, code, **env)
        assert done.returncode == 0, done.stderr
        retries, telemetry, concurrency = json.loads(done.stdout.splitlines()[-1])
        assert (retries, telemetry) == (2, False)
        assert concurrency["runs"]["tag_concurrency_limits"][0]["key"] == "cdc/source"
        assert concurrency["pools"] == {"default_limit": 1, "granularity": "run"}
    (tmp_path / "home" / "dagster.yaml").write_text("telemetry: {enabled: false}\nrun_retries: {max_retries: 7}\n")
    done = outside(unpacked, tmp_path, code, DAGSTER_HOME=str(tmp_path / "home"))
    assert json.loads(done.stdout.splitlines()[-1])[0] == 7


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """The programs' folder of a clean virtual environment: the runtime lock and the wheel, nothing else."""
    folder = tmp_path_factory.mktemp("clean") / "venv"
    venv.create(folder, with_pip=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-deps"]
    subprocess.run([*pip, "--require-hashes", "-r", str(ROOT / "deploy" / "requirements.lock")], check=True)
    subprocess.run([*pip, str(wheel)], check=True)
    subprocess.run([str(folder / "bin" / "python"), "-m", "pip", "check"], check=True)
    return folder / "bin"


@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.thorough
def test_a_clean_environment_runs_a_topic_end_to_end(installed, broker, tmp_path):
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    errors: list[object] = []
    message = {
        **{"database": "shop", "table": "t", "type": "INSERT", "isDdl": False, "id": 1, "es": 1767323045000, "sql": ""},
        **{"ts": 1767323045100, "pkNames": ["id"], "mysqlType": {"id": "int", "v": "varchar(9)"}},
        **{"sqlType": {"id": 4, "v": 12}, "data": [{"id": "1", "v": "a"}], "old": None},
    }
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    admin = AdminClient(servers)
    admin.create_topics([NewTopic("packaged", 1)])["packaged"].result(30)
    producer = Producer(servers)
    producer.produce("packaged", json.dumps(message).encode(), on_delivery=lambda error, _: errors.append(error))
    producer.flush(30)
    assert errors == [None]
    (tmp_path / "cdc.yaml").write_text(
        f"lake: ./lake\nspark: {{master: 'local[2]'}}\nkafka: {{bootstrap.servers: '{broker.bootstrap_servers}'}}\n"
        "sources: [{name: s, format: canal_json, topics: [packaged]}]\n"
    )

    def program(*args: str) -> subprocess.CompletedProcess[str]:
        env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYSPARK_PYTHON", "CDC_JARS")}
        env["JAVA_HOME"] = str(find_java().home)
        return subprocess.run(
            [str(installed / "cdc-platform"), *args],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    assert program("--version").stdout.strip() == cdc_platform.__version__
    assert "--transactions" in program("demo", "--help").stdout
    assert "canal_json" in program("inspect", "packaged").stdout
    ran = program("run", "--json")
    result = json.loads(ran.stdout)
    assert (ran.returncode, result["tables"][0]["table"]) == (0, "shop.t"), ran.stderr
    status = program("status", "--json")
    assert json.loads(status.stdout)["sources"][0]["source"] == "s", status.stderr
    assert not (tmp_path / ".telemetry").exists()
