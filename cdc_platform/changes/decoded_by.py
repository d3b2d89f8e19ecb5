"""What messages are decoded by, as one digest: the same code, told the same, makes the same of the same bytes."""

import hashlib
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable

_PACKAGES = ("cdc_platform.formats", "cdc_platform.mysql", "cdc_platform.changes", "cdc_platform.tables")
"""Where the code of the decoders is. Their version says nothing of a type that is read more exactly."""


def decoded_by(told: str) -> str:
    """Digest of the code of this process's platform and of what its decoder was told (`Known.digest`)."""
    return hashlib.blake2b(f"{_CODE} {told}".encode(), digest_size=16).hexdigest()


def code(*more: str) -> str:
    """Digest of the code of the decoders, and of more packages, as their files are now."""
    found = hashlib.blake2b(digest_size=16)
    for package in (*_PACKAGES, *more):
        for path, file in sorted(_files(package, files(package))):
            found.update(f"{path}\0{hashlib.sha256(file).hexdigest()}\0".encode())
    return found.hexdigest()


def _files(path: str, folder: Traversable) -> Iterator[tuple[str, bytes]]:
    for each in folder.iterdir():
        if each.is_file():
            yield f"{path}/{each.name}", each.read_bytes()
        elif each.name != "__pycache__":
            yield from _files(f"{path}/{each.name}", each)


_CODE = code()
"""Now, with the code: an upgrade in place isn't to be taken for what a worker of before has loaded."""
