"""Installs a missing system package where that is allowed; else says the one command that does. Stdlib only:
set-up runs this before any package is there."""

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence

from cdc_platform.errors import SetupError

# Another apt (unattended-upgrades on a fresh cloud machine) may hold the lock for a while.
_APT = ["apt-get", "-o", "DPkg::Lock::Timeout=180"]


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


def _privilege() -> list[str] | None:
    """The prefix that makes apt-get work: nothing for root, sudo that asks no password, or None: no way."""
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") and _run(["sudo", "-n", "true"]).returncode == 0:
        return ["sudo", "-n", "env", "DEBIAN_FRONTEND=noninteractive"]
    return None


def _first_known(packages: Sequence[str]) -> str:
    """The first package of the list that this release of Debian or Ubuntu has, as far as apt knows yet."""
    if shutil.which("apt-cache"):
        for package in packages:
            if _run(["apt-cache", "show", package]).returncode == 0:
                return package
    return packages[0]


def command(packages: Sequence[str]) -> str:
    """The command that installs the first of `packages` that this release has."""
    text = f"apt-get update && apt-get install -y {_first_known(packages)}"
    return text if os.geteuid() == 0 else text.replace("apt-get", "sudo apt-get")


def install(packages: Sequence[str], problem: str, say: Callable[[str], None]) -> None:
    """Installs the first of `packages` that this release has (the names differ between releases).

    `problem` opens the error's message. Raises SetupError, ending with the command, where apt-get is missing,
    root rights can't be had without a password, or no package could be installed.
    """
    prefix = _privilege()
    by_hand = command(packages)
    if prefix is None or not shutil.which("apt-get"):
        raise SetupError(f"{problem}. Install it with: {by_hand}")
    say("apt-get update")
    _run([*prefix, *_APT, "update"])  # one broken extra repository must not stop us: the install decides
    failures = []
    for package in packages:
        say(f"apt-get install -y {package}")
        done = _run([*prefix, *_APT, "install", "-y", "--no-install-recommends", package])
        if done.returncode == 0:
            return
        failures.append(f"{package}: {(done.stderr or done.stdout).strip()[-400:]}")
    raise SetupError(f"{problem}, and apt-get failed ({'; '.join(failures)}). Try: {by_hand}")
