"""Folders of copies: a killed process's go when the next one makes its own, a living one's stay."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdc_platform.lake import copy_folders

_OTHER = "import sys, time; from cdc_platform.lake import copy_folders as c; f = c.new(); print(f.name, flush=True)"


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def other(temporary: Path) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Another process, and its folder."""
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with subprocess.Popen(
        [sys.executable, "-c", f"{_OTHER}; time.sleep(600)"], env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield process, Path(process.stdout.readline().strip())
        process.kill()


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGKILL])
def test_what_a_killed_process_left_goes_and_a_living_ones_stays(temporary, other, by):
    process, folder = other
    mine = Path(copy_folders.new().name).parent
    assert folder.is_dir() and folder.parent != mine
    assert [p.stat().st_mode & 0o777 for p in (folder, folder.parent)] == [0o700, 0o700]
    process.send_signal(by)
    process.wait()
    assert folder.exists()
    copy_folders.sweep(str(temporary))
    assert sorted(temporary.iterdir()) == [mine]


def test_a_process_that_ends_leaves_nothing(temporary):
    subprocess.run([sys.executable, "-c", _OTHER], env={**os.environ, "TMPDIR": str(temporary)}, check=True)
    assert list(temporary.iterdir()) == []


def test_what_isnt_a_folder_of_copies_stays(temporary):
    """One that is being made has no lock yet; who can write the temporary folder can't have others' removed."""
    made, old, kept = temporary / "cdc-copy-new", temporary / "cdc-copy-old", temporary / "kept"
    for path in (made, old, kept):
        path.mkdir()
    (temporary / "cdc-copy-link").symlink_to(kept)
    day_ago = time.time() - 25 * 3600
    os.utime(old, (day_ago, day_ago))
    copy_folders.sweep(str(temporary))
    assert sorted(p.name for p in temporary.iterdir()) == ["cdc-copy-link", "cdc-copy-new", "kept"]
