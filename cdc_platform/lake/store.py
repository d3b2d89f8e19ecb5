"""What every store of a lake can do, be it a folder or an object store: all reads and writes of a lake's files. Which
one a lake has: `stores.of`. No Spark here."""

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import ClassVar, NamedTuple, Self

import pyarrow as pa

from cdc_platform.config.storage import Storage
from cdc_platform.errors import StorageError


@contextmanager
def writing(uri: str) -> Iterator[None]:
    """Raises StorageError for pyarrow's errors of a write, which don't say of which file."""
    try:
        yield
    except OSError as error:
        problem = os.strerror(error.errno) if error.errno else str(error)
        raise StorageError(uri, problem, retriable=True) from None


@dataclass(slots=True)
class NewFile:
    """A file being written to `file`. Nothing is there by its name before `close`, nor after `discard`. As a context:
    an exception discards it."""

    file: pa.NativeFile
    _publish: Callable[[pa.NativeFile], int]
    _drop: Callable[[], None]
    _done: bool = False

    def close(self) -> int:
        """Makes the file, in place of one that is there. Returns its bytes. Raises StorageError, and nothing is there
        then."""
        self._done = True
        return self._publish(self.file)

    def discard(self) -> None:
        """Leaves nothing behind of a file that isn't wanted after all."""
        if not self._done:
            self._done = True
            self._drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _why: BaseException | None, _at: TracebackType | None) -> None:
        if kind is not None:
            self.discard()
        elif not self._done:
            self.close()


@dataclass(frozen=True)
class Store(ABC):
    """A lake, or a place below it. Can be pickled, for tasks, with the secrets, which it doesn't show. Paths are
    relative to it, with `/`. All operations raise StorageError."""

    remote: ClassVar[bool]
    """Whether each call is a request over the network, to a store that is the same wherever it is asked from."""

    root: str
    storage: Storage = field(repr=False)

    def at(self, path: str) -> Self:
        """The place below."""
        return replace(self, root=self.uri(path))

    def uri(self, path: str = "") -> str:
        """A path as delta-rs takes it: absolute, or a URI."""
        return f"{self.root}/{checked(path)}" if path else self.root

    def spark_uri(self, path: str = "") -> str:
        """A path as Spark takes it. Raises ConfigError."""
        return self.uri(path)

    @property
    def options(self) -> dict[str, str]:
        """delta-rs's `storage_options`: secrets."""
        return self.storage.delta_options(self.root)

    @abstractmethod
    def read(self, path: str) -> bytes | None:
        """A small file; None: there is none."""

    @abstractmethod
    def open_input(self, path: str) -> pa.NativeFile:
        """A file to seek and read in, as pyarrow's readers take it; with `pre_buffer` they ask for few ranges. Raises
        FileNotFoundError."""

    @abstractmethod
    def open_output(self, path: str) -> NewFile:
        """A new file, of a name that nobody else writes to."""

    @abstractmethod
    def put(self, path: str, data: bytes) -> None:
        """A small file, in place of one that is there."""

    @abstractmethod
    def put_new(self, path: str, data: bytes) -> bool:
        """Makes a small file in one step, unless one is there. Of several that do so at once one gets True. Where the
        answer to it was lost, it is found out who made the file."""

    @abstractmethod
    def is_here(self) -> bool:
        """Whether this process sees the place: a folder may be another machine's. An object store's is everywhere."""

    @abstractmethod
    def names(self, folder: str, *, after: str = "") -> list[tuple[str, int]]:
        """Names and bytes of the files right in a folder, sorted by name; those that sort after `after`. Files being
        written and hidden ones aren't among them. With `after` an object store lists what is in folders below, too."""

    @abstractmethod
    def commits(self, first: int) -> dict[int, str]:
        """The commits of the Delta table here from a version on, if that one is there: number → what another commit of
        this number wouldn't have."""

    @abstractmethod
    def below(self, folder: str) -> list[str]:
        """Paths, from there, of the files in a folder and in those in it."""

    @abstractmethod
    def sizes(self, folder: str) -> dict[str, int]:
        """The same, sorted, with their bytes."""

    @abstractmethod
    def size(self, path: str) -> int | None:
        """A file's bytes; None: there is no file."""

    def exists(self, path: str) -> bool:
        """Whether a file is there; a folder is none."""
        return self.size(path) is not None

    @abstractmethod
    def remove(self, paths: Iterable[str]) -> None:
        """Removes files, if they are there."""


class File(NamedTuple):
    """A file of a store, by its path there."""

    store: Store
    path: str

    def open(self) -> pa.NativeFile:
        """As Store.open_input."""
        return self.store.open_input(self.path)

    @property
    def uri(self) -> str:
        """As Store.uri."""
        return self.store.uri(self.path)


COMMIT = re.compile("[0-9]{20}[.]json")
"""Name of a commit's file."""


def commit_name(version: int) -> str:
    """A commit's file in a Delta table (Delta's protocol, "Delta Log Entries")."""
    return f"_delta_log/{version:020d}.json"


def checked(path: str) -> str:
    """A relative path. Raises ValueError."""
    if any(part in ("", ".", "..") for part in path.split("/")) or not path.isprintable():
        raise ValueError(f"no path in a lake: {path!r}")
    return path


def shown(name: str) -> bool:
    """Whether a file is neither hidden nor one that is being written."""
    return not name.startswith(".") and not name.endswith(".tmp")
