"""Places of lakes in tests: a folder as the store that the platform takes for it."""

import os

from cdc_platform.config import Storage
from cdc_platform.lake import stores
from cdc_platform.lake.store import File, Store


def store_at(folder: str | os.PathLike[str]) -> Store:
    """The store of a folder."""
    return stores.of(str(folder), Storage())


def file_at(path: str | os.PathLike[str]) -> File:
    """A file of a folder."""
    folder, name = os.path.split(str(path))
    return File(store_at(folder), name)
