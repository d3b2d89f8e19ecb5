"""A lake in a folder, by the system's own calls. Not by obstore: it doesn't flush what it writes in a folder to the
disk, a small read costs 85 µs by it instead of 11, and a look whether a file is there 52 instead of 2."""

import errno
import os
import stat
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa

from cdc_platform.errors import StorageError
from cdc_platform.lake.store import COMMIT, NewFile, Store, checked, shown

_LATER = frozenset(
    (
        *(errno.EIO, errno.EAGAIN, errno.EINTR, errno.ESTALE, errno.ETIMEDOUT, errno.EMFILE, errno.ENFILE),
        *(errno.ENOSPC, errno.EDQUOT),
    )
)
"""Faults that may be over later."""
_NO_LINKS = frozenset((errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK))


class Folder(Store):
    """A lake in a folder that this process sees."""

    remote = False

    def read(self, path: str) -> bytes | None:
        with self._faults(path):
            try:
                with open(self._name(path), "rb") as file:
                    return file.read()
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                return None

    def open_input(self, path: str) -> pa.NativeFile:
        with self._faults(path):
            return pa.OSFile(self._name(path))

    def open_output(self, path: str) -> NewFile:
        name = self._name(path)
        made = f"{name}.{uuid.uuid4()}.tmp"  # not hidden: VACUUM takes what a killed process left

        def publish(file: pa.NativeFile) -> int:
            with self._faults(path):
                try:
                    size = file.tell()
                    file.close()
                    _flush(made)
                    os.replace(made, name)
                except BaseException:
                    Path(made).unlink(missing_ok=True)
                    raise
            return size

        def drop() -> None:
            with suppress(OSError):  # of a full disk: what is left to write fails again
                file.close()
            Path(made).unlink(missing_ok=True)

        with self._faults(path):
            os.makedirs(os.path.dirname(made), exist_ok=True)
            file = pa.OSFile(made, "wb")
        return NewFile(file, publish, drop)

    def put(self, path: str, data: bytes) -> None:
        with self._faults(path), self._aside(path, data) as made:
            os.replace(made, self._name(path))

    def put_new(self, path: str, data: bytes) -> bool:
        with self._faults(path), self._aside(path, data) as made:
            try:
                os.link(made, self._name(path))
            except FileExistsError:
                return os.stat(made).st_nlink > 1  # NFS: the link was made, its answer was lost, and it was asked again
            except OSError as error:
                if error.errno in _NO_LINKS:
                    problem = "this file system has no hard links, without which two commits can't exclude each other"
                    raise StorageError(self.uri(path), problem, retriable=False) from None
                raise
            return True

    def names(self, folder: str, *, after: str = "") -> list[tuple[str, int]]:
        return [(name, of.st_size) for name, of in self._stats(folder, after)]

    def commits(self, first: int) -> dict[int, str]:
        found = {name: of for name, of in self._stats("_delta_log", f"{first:020d}") if COMMIT.fullmatch(name)}
        return {int(name[:20]): f"{of.st_ino} {of.st_mtime_ns} {of.st_size}" for name, of in found.items()}

    def _stats(self, folder: str, after: str) -> list[tuple[str, os.stat_result]]:
        with self._faults(folder):
            try:
                with os.scandir(self.uri(folder)) as entries:
                    kept = [e for e in entries if e.name > after and e.is_file()]
                    return sorted((e.name, e.stat()) for e in kept if shown(e.name))
            except (FileNotFoundError, NotADirectoryError):
                return []

    def below(self, folder: str) -> list[str]:
        root, found = self.uri(folder), []
        with self._faults(folder):
            for at, _, names in os.walk(root):
                found += [os.path.relpath(f"{at}/{name}", root) for name in names if shown(name)]
        return sorted(found)

    def sizes(self, folder: str) -> dict[str, int]:
        found = ((path, self.size(f"{folder}/{path}".lstrip("/"))) for path in self.below(folder))
        return {path: size for path, size in found if size is not None}

    def is_here(self) -> bool:
        return os.path.isdir(self.root)

    def file_system(self) -> str:
        """What tells the file system that it is on from others: its kind, its device or server, and its own number.
        Unlike a number of the running system (`st_dev`), all of them stay when it is mounted anew, on most systems."""
        import psutil

        at, mounts = f"{os.path.realpath(self.root)}/", []
        with suppress(OSError):
            mounts = [m for m in psutil.disk_partitions(all=True) if at.startswith(f"{m.mountpoint.rstrip('/')}/")]
        names = [f"{m.fstype} {m.device} " for m in sorted(mounts, key=lambda m: len(m.mountpoint))[-1:]]
        with self._faults(""):
            return f"{''.join(names)}{os.statvfs(self.root).f_fsid:x}"

    def size(self, path: str) -> int | None:
        with self._faults(path):
            try:
                found = os.stat(self._name(path))
            except (FileNotFoundError, NotADirectoryError):
                return None
        return found.st_size if stat.S_ISREG(found.st_mode) else None

    def remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            with self._faults(path), suppress(FileNotFoundError, NotADirectoryError):
                os.unlink(self._name(path))

    def _name(self, path: str) -> str:
        return f"{self.root}/{checked(path)}"

    @contextmanager
    def _aside(self, path: str, data: bytes) -> Iterator[str]:
        """The data in a hidden file beside, on the disk. It is gone afterwards."""
        folder, name = os.path.split(self._name(path))
        made = f"{folder}/.{name}.{uuid.uuid4()}.tmp"
        os.makedirs(folder, exist_ok=True)
        try:
            with open(made, "xb") as out:
                out.write(data)
            _flush(made)
            yield made
        finally:
            Path(made).unlink(missing_ok=True)

    @contextmanager
    def _faults(self, path: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            problem = error.strerror or str(error)
            raise StorageError(self.uri(path), problem, retriable=error.errno in _LATER) from None


def _flush(name: str) -> None:
    """Has the disk hold a file before a commit names it. A journaling file system then has its name, too, once it has
    that of the commit, which comes later."""
    file = os.open(name, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
