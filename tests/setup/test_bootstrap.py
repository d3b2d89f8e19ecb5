"""Set-up on machines that lack something: the programs of such a machine are small scripts on PATH."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cdc_platform.errors import SetupError
from cdc_platform.setup import apt, bootstrap, java
from cdc_platform.setup.java import find_java, parse_version

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with no Java and just the programs that the test adds; they note how they were called."""
    programs = tmp_path / "bin"
    programs.mkdir()
    calls = tmp_path / "calls"

    def add(name: str, script: str = "") -> Path:
        path = programs / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >> {calls}\n{script}\n')
        path.chmod(0o755)
        return path

    add.calls = lambda: calls.read_text().splitlines() if calls.exists() else []
    add.java = lambda version: f"echo 'openjdk version \"{version}\"' >&2"
    monkeypatch.setenv("PATH", f"{programs}:/bin:/usr/sbin:/sbin")
    monkeypatch.setattr(apt.shutil, "which", lambda name: str(programs / name) if (programs / name).exists() else None)
    monkeypatch.setattr(java, "_JVM_ROOT", tmp_path / "jvm")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    java._probe.cache_clear()
    yield add
    java._probe.cache_clear()


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "25" 2025-09-16', 25),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", None),
    ],
)
def test_java_version(text, version):
    assert parse_version(text) == version


def test_an_old_java_is_named_and_passed_over(machine, monkeypatch, tmp_path):
    machine("java", machine.java("11.0.2"))
    with pytest.raises(SetupError, match=r"java is Java 11.*make setup"):
        find_java()
    newer = tmp_path / "jvm" / "java-21" / "bin" / "java"
    newer.parent.mkdir(parents=True)
    newer.write_text(f"#!/bin/sh\n{machine.java('21.0.1')}\n")
    newer.chmod(0o755)
    assert (find_java().version, find_java().home) == (21, newer.parent.parent)


def test_java_home_comes_first(machine, monkeypatch, tmp_path):
    machine("java", machine.java("17.0.1"))
    home = tmp_path / "own"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text(f"#!/bin/sh\n{machine.java('25')}\n")
    (home / "bin" / "java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.java_env() == {"JAVA_HOME": str(home)}


def test_a_missing_java_is_installed_by_the_name_this_release_has(machine, monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    there = tmp_path / "bin" / "java"
    machine(
        "apt-get",
        f"""case "$*" in
          *install*openjdk-17*) echo "E: Unable to locate package" >&2; exit 100;;
          *install*openjdk-21*)
            printf '%s\\n' '#!/bin/sh' 'echo "version \\"21.0.1\\"" >&2' > {there}; chmod +x {there};;
        esac""",
    )
    said: list[str] = []
    assert java.ensure_java(said.append).version == 21
    assert [c.split()[3] for c in machine.calls() if c.startswith("apt-get")] == [
        "update",
        "install",
        "install",
    ]
    assert said[-1] == "apt-get install -y openjdk-21-jre-headless"


def test_without_rights_the_one_command_is_told(machine, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    machine("apt-get")
    machine("sudo", "exit 1")
    machine("apt-cache", 'test "$2" = openjdk-21-jre-headless')
    with pytest.raises(SetupError) as caught:
        java.ensure_java(lambda _: None)
    assert str(caught.value) == (
        "no Java 17 or newer found. Install it with: "
        "sudo apt-get update && sudo apt-get install -y openjdk-21-jre-headless"
    )
    assert not any(call.startswith("apt-get") for call in machine.calls())


def test_sudo_that_asks_nothing_is_used(machine, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    machine("apt-get")
    machine("sudo", 'shift; exec "$@"')
    apt.install(["python3.11-venv"], "no venv", lambda _: None)
    assert any(c.startswith("sudo -n env") and c.endswith("python3.11-venv") for c in machine.calls())
    assert machine.calls()[-1].endswith("--no-install-recommends python3.11-venv")


def test_apt_get_that_fails_is_quoted(machine, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    machine("apt-get", "echo 'E: no space left on device' >&2; exit 100")
    with pytest.raises(SetupError, match=r"no space left on device.*apt-get install -y openjdk-17"):
        java.ensure_java(lambda _: None)


def make(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", *args], cwd=ROOT, env=os.environ | env, capture_output=True, text=True, check=False)


def test_an_old_python_is_refused_with_the_way_out(tmp_path):
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    done = make("setup", f"PYTHON={old}")
    assert done.returncode != 0
    assert "Python 3.11, 3.12 or 3.13 is needed" in done.stderr
    assert "apt-get install" in done.stderr


def test_make_alone_lists_the_targets():
    done = make()
    assert done.returncode == 0
    listed = {line.split()[0] for line in done.stdout.splitlines()}
    assert {"setup", "demo", "test", "test-fast", "check", "lock", "proto", "ui", "bench", "clean"} <= listed


def test_the_stamp_follows_the_inputs_and_not_the_tools_settings(tmp_path, monkeypatch):
    for name in ("requirements.lock", "pyproject.toml"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    monkeypatch.setattr(bootstrap, "ROOT", tmp_path)
    first = bootstrap.wanted()
    with open(tmp_path / "pyproject.toml", "a") as file:
        file.write("\n[tool.other]\nx = 1\n")
    assert bootstrap.wanted() == first
    with open(tmp_path / "requirements.lock", "a") as file:
        file.write("\n")
    changed = bootstrap.wanted()
    assert {name for name in first if first[name] != changed[name]} == {"packages"}


def test_a_damaged_stamp_is_no_stamp(tmp_path, monkeypatch):
    monkeypatch.setattr(bootstrap, "STAMP", tmp_path / "stamp")
    assert bootstrap.stamped() == {}
    (tmp_path / "stamp").write_text('{"venv": ')
    assert bootstrap.stamped() == {}
    (tmp_path / "stamp").write_text(json.dumps(bootstrap.wanted()))
    assert bootstrap.stamped() == bootstrap.wanted()


def test_setup_needs_no_installed_package():
    code = "import cdc_platform.setup.bootstrap, cdc_platform.setup.jars"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}"],
        check=False,
    )
    assert done.returncode == 0


def test_a_venv_that_is_a_link_is_left_alone(tmp_path, monkeypatch):
    (tmp_path / "theirs" / "bin").mkdir(parents=True)
    (tmp_path / ".venv").symlink_to(tmp_path / "theirs")
    monkeypatch.setattr(bootstrap, "VENV", tmp_path / ".venv")
    with pytest.raises(SetupError, match="is a link"):
        bootstrap.install({"venv": "x", "packages": "y", "own": "z"}, {})
    assert (tmp_path / "theirs" / "bin").is_dir()
