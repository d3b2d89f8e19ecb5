"""The digest of what messages are decoded by."""

import sys

import pytest

from cdc_platform.changes import decoded_by as by


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "some_decoders"
    (folder / "inner").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "inner" / "types.py").write_text("READ = 'int'\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(by, "_PACKAGES", ("some_decoders",))
    yield folder
    sys.modules.pop("some_decoders", None)


def test_other_code_is_another_decoder(package):
    before = by.code()
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "types.pyc").write_bytes(b"made from it")
    assert by.code() == before
    (package / "inner" / "types.py").write_text("READ = 'int', 'vector'\n")
    assert by.code() != before


def test_an_upgrade_beside_a_process_is_not_what_it_has_loaded(package):
    before = by.decoded_by("ab")
    (package / "inner" / "types.py").write_text("READ = 'int', 'vector'\n")
    assert by.decoded_by("ab") == before


def test_the_decoders_own_code_counts():
    assert len({by.decoded_by(told) for told in ("ab", "cd")}) == 2
    modules = {name for package in by._PACKAGES for name, _ in by._files(package, by.files(package))}
    assert {"cdc_platform.mysql/types.py", "cdc_platform.formats/debezium/__init__.py"} <= modules
