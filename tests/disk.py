"""A small file system of a test's own, which can run full."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class Disk:
    """Mounted at `path`."""

    def __init__(self, path: Path):
        self.path, self._ballast = path, path / ".ballast"

    def leave(self, left: int) -> None:
        """Makes it full but for so many bytes."""
        self.empty()
        free = os.statvfs(self.path)
        self._ballast.write_bytes(b"x" * max(0, free.f_bavail * free.f_frsize - left))

    def empty(self) -> None:
        """Takes away what made it full."""
        self._ballast.unlink(missing_ok=True)


@contextmanager
def mounted(path: Path, size: str) -> Iterator[Disk]:
    """One of that size in a new folder; skips the test where none can be mounted."""
    if os.geteuid():
        pytest.skip("mounts a file system")
    path.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(path)], check=False).returncode:
        pytest.skip("no mounts here")
    try:
        yield Disk(path)
    finally:
        subprocess.run(["umount", str(path)], check=False)
