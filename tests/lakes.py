"""Places of lakes in tests: a folder as the store that the platform takes for it."""

import json
import os
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import SecretStr

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


def plain(storage: Storage) -> str:
    """As JSON with its secrets, for a process that a test starts."""
    shown = {name: getattr(storage, name) for name in Storage.model_fields}
    secret = {name: value.get_secret_value() for name, value in shown.items() if isinstance(value, SecretStr)}
    return json.dumps({name: value for name, value in {**shown, **secret}.items() if value is not None})


def forget_all() -> None:
    """This process knows of tables what one that has just begun does."""
    from cdc_platform.lake import copies, handles, log_state

    for kept in (copies._kept, handles._kept, log_state._kept):
        kept.clear()


class Process:
    """What another process knows of tables: within `running`, this one knows that, and nothing else."""

    def __init__(self) -> None:
        self._known: list[OrderedDict[Any, Any]] = [OrderedDict(), OrderedDict(), OrderedDict()]

    @contextmanager
    def running(self) -> Iterator[None]:
        """To be left before another one runs."""
        self._change()
        try:
            yield
        finally:
            self._change()

    def _change(self) -> None:
        from cdc_platform.lake import copies, handles, log_state

        for i, of in enumerate((copies, handles, log_state)):
            self._known[i], of._kept = of._kept, self._known[i]
