"""The files of deploy/: that they fit each other and the package."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdc_platform import __version__
from cdc_platform.config import load_config

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
PROGRAMS = ("code-server", "webserver", "daemon")
KUBERNETES = "1.33"
"""Whose schemas the manifests are held to. All kinds in use have been in it for years."""


NO_MANIFESTS = ("kustomization.yaml", "cdc.yaml", "executors/code-server.yaml")
"""What kustomize reads and the cluster doesn't get as it is."""


def checked(program: str, *args: str | Path, folder: Path = ROOT) -> tuple[int, str]:
    """Exit code and output of a program of .venv."""
    command = [str(Path(sys.executable).with_name(program)), *map(str, args)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


def test_dagster_yaml_is_the_packages_with_postgres():
    deployed = yaml.safe_load((DEPLOY / "dagster.yaml").read_text())
    assert set(deployed.pop("storage")) == {"postgres"}
    assert deployed == yaml.safe_load((ROOT / "cdc_platform" / "data" / "dagster.yaml").read_text())


@pytest.mark.parametrize("path", [DEPLOY / "cdc.yaml", DEPLOY / "kubernetes" / "cdc.yaml"], ids=str)
def test_examples_of_cdc_yaml_are_valid(path):
    assert [source.name for source in load_config(path).sources] == ["shop"]


def test_what_the_image_copies_is_there_and_not_ignored():
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (DEPLOY / "Dockerfile").read_text(), re.M)
    files = [name for line in copied for name in line.split()]
    assert len(files) > 5
    for name in files:
        assert (ROOT / name).exists(), name
        assert f"!{name}" in ignored, name


@pytest.mark.skipif(not Path(sys.executable).with_name("hadolint").exists(), reason="no hadolint for this platform")
def test_hadolint_accepts_the_dockerfile(tmp_path):
    assert checked("hadolint", DEPLOY / "Dockerfile") == (0, "")
    (tmp_path / "Dockerfile").write_text("FROM debian:latest\nUSER root\n")
    assert checked("hadolint", tmp_path / "Dockerfile")[0] == 1


def test_the_scripts_have_no_faults_that_shellcheck_sees():
    assert checked("shellcheck", DEPLOY / "entrypoint.sh", ROOT / ".ci" / "run") == (0, "")


def test_compose_is_of_its_specification(tmp_path):
    check = ("--builtin-schema", "vendor.compose-spec")
    code, said = checked("check-jsonschema", *check, DEPLOY / "docker-compose.yaml")
    assert code == 0, said
    wrong = (DEPLOY / "docker-compose.yaml").read_text().replace("restart:", "restarts:", 1)
    (tmp_path / "docker-compose.yaml").write_text(wrong)
    code, said = checked("check-jsonschema", *check, tmp_path / "docker-compose.yaml")
    assert (code, "restarts" in said) == (1, True)


def test_kubernetes_takes_the_manifests(tmp_path):
    check = ("--strict", "-k", KUBERNETES)
    folder = DEPLOY / "kubernetes"
    ignored = {p for name in NO_MANIFESTS for p in folder.rglob(name)}
    manifests = sorted(set(folder.rglob("*.yaml")) - ignored)
    assert len(manifests) > 8
    code, said = checked("kubernetes-validate", *check, *manifests)
    assert code == 0, said
    (tmp_path / "wrong.yaml").write_text((DEPLOY / "kubernetes" / "daemon.yaml").read_text().replace("args:", "arg:"))
    assert checked("kubernetes-validate", *check, tmp_path / "wrong.yaml")[0] != 0


def test_compose_has_an_s3_server_that_the_image_can_use():
    compose = yaml.safe_load((DEPLOY / "docker-compose.yaml").read_text())
    server = compose["services"]["s3"]
    assert server["profiles"] == ["s3"], "nobody needs it who keeps the lake in a folder"
    environment = compose["services"]["code-server"]["environment"]
    assert environment["S3_PASSWORD"] == server["environment"]["MINIO_ROOT_PASSWORD"]
    assert environment["S3_KEY"] == server["environment"]["MINIO_ROOT_USER"]
    # User 10001 can't fetch jars into the image at first use.
    assert "\nRUN cdc-platform setup --store s3\n" in (DEPLOY / "Dockerfile").read_text()


def test_compose_runs_each_program_and_asks_for_its_health():
    compose = yaml.safe_load((DEPLOY / "docker-compose.yaml").read_text())
    for program in PROGRAMS:
        service = compose["services"][program]
        assert service["command"] == [program]
        assert service["healthcheck"]["test"] == ["CMD", "/opt/cdc/deploy/entrypoint.sh", "health", program]
        assert service["image"] == f"cdc-platform:{__version__}"
    published = [p for service in compose["services"].values() for p in service.get("ports", [])]
    assert published
    assert all(p.startswith("127.0.0.1:") for p in published)


def test_kubernetes_runs_each_program_once():
    for program in PROGRAMS:
        deployment, *_ = documents(DEPLOY / "kubernetes" / f"{program}.yaml")
        spec = deployment["spec"]
        assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
        pod = spec["template"]["spec"]
        (container,) = pod["containers"]
        assert container["args"] == [program]
        for probe in ("startupProbe", "livenessProbe"):
            assert container[probe]["exec"]["command"] == ["/opt/cdc/deploy/entrypoint.sh", "health", program]
        assert pod["securityContext"]["runAsNonRoot"] is True
        # Kubernetes would set CDC_CODE_SERVER_PORT=tcp://… for a service of that name.
        assert pod["enableServiceLinks"] is False


def test_kustomization_names_what_is_there():
    (kustomization,) = documents(DEPLOY / "kubernetes" / "kustomization.yaml")
    (config, _) = kustomization["configMapGenerator"]
    there = {path.name for path in (DEPLOY / "kubernetes").glob("*.yaml")} - {"kustomization.yaml"}
    assert {*kustomization["resources"], *config["files"]} == there
    assert kustomization["images"][0]["newTag"] == __version__


def kustomized(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """(kind, name) → what the cluster gets."""
    done = subprocess.run(["kubectl", "kustomize", str(folder)], capture_output=True, text=True, check=True, timeout=60)
    found = yaml.safe_load_all(done.stdout)
    return {(d["kind"], re.sub(r"-[a-z0-9]{10}$", "", d["metadata"]["name"])): d for d in found}


@pytest.mark.skipif(not shutil.which("kubectl"), reason="no kubectl")
def test_executors_as_pods_are_a_component_that_changes_nothing_unless_it_is_named(tmp_path):
    folder = shutil.copytree(DEPLOY / "kubernetes", tmp_path / "kubernetes")
    plain = kustomized(folder)
    text = (folder / "kustomization.yaml").read_text()
    (folder / "kustomization.yaml").write_text(text.replace("# components: [executors]", "components: [executors]"))
    more = kustomized(folder)
    added = {("ServiceAccount", "cdc-code-server"), ("Role", "cdc-executors"), ("RoleBinding", "cdc-executors")}
    assert more.keys() - plain.keys() == added | {("NetworkPolicy", "cdc-drivers"), ("NetworkPolicy", "cdc-executors")}
    changed = {key for key in plain if plain[key] != more[key]}
    assert {key for key in changed if key[0] != "Deployment"} == {("ConfigMap", "cdc-config")}
    assert more["ConfigMap", "cdc-config"]["data"].keys() == {"cdc.yaml", "executor.yaml"}
    pod = more["Deployment", "cdc-code-server"]["spec"]["template"]["spec"]
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("cdc-code-server", True)
    assert [e["name"] for e in pod["containers"][0]["env"]] == ["POD_IP", "POD_NAME"]
    assert "serviceAccountName" not in plain["Deployment", "cdc-code-server"]["spec"]["template"]["spec"]


@pytest.mark.parametrize("program", PROGRAMS)
def test_systemd_runs_each_program(program):
    unit = (DEPLOY / "systemd" / f"cdc-{program}.service").read_text()
    assert f"ExecStart=/opt/cdc/deploy/entrypoint.sh {program}\n" in unit
    assert "User=cdc\n" in unit


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd")
def test_systemd_accepts_the_units(tmp_path):
    program = tmp_path / "entrypoint.sh"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for unit in (DEPLOY / "systemd").glob("*.service"):
        # The program lies elsewhere on the machine that the units are for.
        text = unit.read_text().replace("/opt/cdc/deploy/entrypoint.sh", str(program))
        (tmp_path / unit.name).write_text(text)
    units = sorted(map(str, tmp_path.glob("*.service")))
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    assert (done.returncode, [line for line in done.stderr.splitlines() if "cdc-" in line]) == (0, [])


def entrypoint(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(DEPLOY / "entrypoint.sh"), *args],
        env={"PATH": "/usr/bin:/bin"} | env,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_entrypoint_says_what_is_missing(tmp_path):
    none = entrypoint()
    assert (none.returncode, "name a program (code-server, webserver, daemon)" in none.stderr) == (2, True)
    bare = entrypoint("daemon", CDC_ETC=str(tmp_path), CDC_HOME=str(tmp_path / "home"))
    assert bare.returncode == 2
    assert f"{tmp_path}/cdc.yaml is missing" in bare.stderr
    unknown = entrypoint("health", "x", CDC_HOME=str(tmp_path))
    assert (unknown.returncode, "health of what?" in unknown.stderr) == (2, True)


def test_a_dagster_yaml_beside_cdc_yaml_wins(tmp_path):
    etc, home, programs = tmp_path / "etc", tmp_path / "home", tmp_path / "bin"
    for folder in (etc, programs):
        folder.mkdir()
    (etc / "cdc.yaml").write_text("x")
    (programs / "cdc-platform").write_text('#!/bin/sh\necho "$@" $CDC_CONFIG $DAGSTER_HOME\n')
    (programs / "cdc-platform").chmod(0o755)
    env = {"CDC_ETC": str(etc), "CDC_HOME": str(home), "PATH": f"{programs}:/usr/bin:/bin"}
    done = entrypoint("status", "--json", **env)
    assert done.stdout.split() == ["status", "--json", f"{home}/cdc.yaml", f"{home}/dagster"], done.stderr
    assert (home / "cdc.yaml").resolve() == etc / "cdc.yaml"
    assert (home / "dagster" / "dagster.yaml").read_text() == (DEPLOY / "dagster.yaml").read_text()
    (etc / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    assert entrypoint("status", **env).returncode == 0
    assert (home / "dagster" / "dagster.yaml").read_text() == "telemetry: {enabled: false}\n"


def test_an_executor_is_what_the_pods_environment_says(tmp_path):
    for program, does in {
        "java": f'printf "%s\\n" "$SPARK_HOME" "$@" > {tmp_path}/asked',
        "python": "echo /py/pyspark",
    }.items():
        (tmp_path / program).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / program).chmod(0o755)
    names = (
        "EXECUTOR_ID",
        "EXECUTOR_CORES",
        "APPLICATION_ID",
        "RESOURCE_PROFILE_ID",
        "EXECUTOR_POD_IP",
        "EXECUTOR_POD_NAME",
    )
    told = {f"SPARK_{name}": name for name in names} | {
        "SPARK_DRIVER_URL": "spark://D@h:1",
        "SPARK_EXECUTOR_MEMORY": "2g",
    }
    options = {f"SPARK_JAVA_OPT_{i}": f"-Dn={i} of * 'all'" for i in range(11)}
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = entrypoint("executor", **path, **told, **options, SPARK_CONF_DIR="/c", SPARK_CLASSPATH="/own.jar")
    assert done.returncode == 0, done.stderr
    home, *asked = (tmp_path / "asked").read_text().splitlines()
    assert (home, asked[:11]) == ("/py/pyspark", list(options.values()))
    assert asked[11:15] == ["-Xms2g", "-Xmx2g", "-cp", "/c:/own.jar:/py/pyspark/jars/*"]
    assert asked[15].endswith(".KubernetesExecutorBackend")
    assert dict(zip(asked[16::2], asked[17::2], strict=True)) == {
        "--driver-url": "spark://D@h:1",
        "--executor-id": "EXECUTOR_ID",
        "--cores": "EXECUTOR_CORES",
        "--app-id": "APPLICATION_ID",
        "--hostname": "EXECUTOR_POD_IP",
        "--resourceProfileId": "RESOURCE_PROFILE_ID",
        "--podName": "EXECUTOR_POD_NAME",
    }
    bare = entrypoint("executor", **path)
    assert (bare.returncode, "SPARK_DRIVER_URL is missing" in bare.stderr) == (2, True)
