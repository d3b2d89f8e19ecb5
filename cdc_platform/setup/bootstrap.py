"""`make setup`: .venv with the locked packages, Java, the jars. What is already right is left alone.

Runs on the machine's own Python with nothing installed, so: stdlib only.
"""

import fcntl
import hashlib
import importlib.util
import json
import subprocess
import sys
import tomllib
from pathlib import Path

from cdc_platform import __version__
from cdc_platform.errors import SetupError
from cdc_platform.setup import apt

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
STAMP = VENV / ".cdc-setup.json"


def say(text: str) -> None:
    """Progress, on stderr."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201  runs before rich is there


def wanted() -> dict[str, str]:
    """What the stamp says of a finished .venv: Python and place, lock file, own metadata."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    own = json.dumps([project["project"], project["build-system"], __version__], sort_keys=True)  # not tools' settings
    return {
        # its scripts hold its path
        "venv": f"{sys.version_info[0]}.{sys.version_info[1]} {VENV}",
        "packages": hashlib.sha256((ROOT / "requirements.lock").read_bytes()).hexdigest(),
        "own": hashlib.sha256(own.encode()).hexdigest(),
    }


def stamped() -> dict[str, str]:
    """What .venv was last finished for; empty where it never was."""
    try:
        return json.loads(STAMP.read_text())
    except (OSError, ValueError):
        return {}


def ensure_venv_module() -> None:
    """Debian splits venv off Python. Raises SetupError with the command where it can't be installed."""
    if importlib.util.find_spec("ensurepip") and importlib.util.find_spec("venv"):
        return
    own = f"python{sys.version_info[0]}.{sys.version_info[1]}-venv"
    apt.install((own, "python3-venv"), f"{sys.executable} lacks the venv module", say)


def _call(what: str, *command: str) -> None:
    code = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, check=False).returncode
    if code:
        raise SetupError(f"{what} failed (exit code {code}); its words are above. Again: make setup")


def install(want: dict[str, str], have: dict[str, str]) -> None:
    """Brings .venv from `have` to `want` (stamps). A kill on the way leaves no stamp, so all is redone."""
    if VENV.is_symlink():
        raise SetupError(
            f"{VENV} is a link: what it leads to may be another checkout's. Remove the link, then: make setup"
        )
    python = VENV / "bin" / "python"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
    if not sys.stderr.isatty():
        pip.append("-q")
    STAMP.unlink(missing_ok=True)
    if want["venv"] != have.get("venv") or not python.exists():
        ensure_venv_module()
        _call("making .venv", sys.executable, "-m", "venv", "--clear", str(VENV))
        have = {}
    if want["packages"] != have.get("packages"):
        say("installing the packages of requirements.lock into .venv (once; some minutes)")
        # The lock file is complete: nothing to resolve (pip 23 trips over extras in hash mode if it tries).
        _call("pip", *pip, "--no-deps", "--require-hashes", "-r", "requirements.lock")
    _call("pip", *pip, "--no-deps", "--no-build-isolation", "-e", ".")
    STAMP.write_text(json.dumps(want))


def main() -> int:
    """Exit code 0 when everything is there."""
    try:
        with open(ROOT / "requirements.lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # `make demo` and `make test` at once must not both write .venv
            want, have = wanted(), stamped()
            if want != have or not (VENV / "bin" / "cdc-platform").is_file():
                install(want, have)
    except SetupError as error:
        say(f"error: {error}")
        return 1
    for module in (
        "cdc_platform.setup.jars",
        "cdc_platform.automation.class_archive",
    ):  # Java and jars, by .venv's pyspark
        command = [str(VENV / "bin" / "python"), "-m", module]
        code = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, check=False).returncode
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
