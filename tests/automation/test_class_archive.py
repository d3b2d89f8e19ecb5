"""The archive of Spark's classes is a help that nothing depends on."""

import subprocess
from pathlib import Path

import pytest

from cdc_platform.automation import class_archive as making
from cdc_platform.setup.java import find_java
from cdc_platform.spark import class_archive


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(class_archive.sys, "prefix", str(tmp_path))
    return tmp_path


def test_without_one_the_jvm_gets_no_option(prefix: Path) -> None:
    assert class_archive.options() == ""
    assert class_archive.archive().parent == prefix


def test_one_that_is_there_is_used_and_not_made_again(prefix: Path) -> None:
    class_archive.archive().write_bytes(b"x")
    assert making.ensure() == class_archive.archive()
    assert class_archive.options().startswith(f"-XX:SharedArchiveFile={prefix}/spark-")


def test_one_that_does_not_fit_is_passed_over_in_silence(prefix: Path) -> None:
    class_archive.archive().write_bytes(b"x" * 10_000)
    command = [str(find_java().binary), *class_archive.options().split(), "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert "version" in done.stderr.splitlines()[0]


def test_where_none_can_be_made_there_is_none(prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making.sys, "executable", "/bin/false")
    assert making.ensure() is None
    assert list(prefix.iterdir()) == []
