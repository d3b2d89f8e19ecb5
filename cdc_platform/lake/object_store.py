"""A lake in a bucket, by obstore."""

import uuid
from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from typing import Any

import obstore
import pyarrow as pa
from obstore.exceptions import AlreadyExistsError, BaseError

from cdc_platform.errors import StorageError
from cdc_platform.lake.object_files import Ranged, client, location, storage_error, translated
from cdc_platform.lake.store import COMMIT, NewFile, Store, checked, shown

_WRITER = "cdcwriter"
"""Metadata of an object made by `put_new`: whose it is. No underscore (some proxies drop such headers)."""
_TRIES = 3
_PART = 16 << 20
"""Bytes from which on a file is uploaded in parts of that size."""


class ObjectStore(Store):
    """A lake in a bucket of S3, or of what is compatible to it."""

    remote = True

    def spark_uri(self, path: str = "") -> str:
        return self.uri(path).replace("s3://", "s3a://", 1)

    def read(self, path: str) -> bytes | None:
        try:
            with self._translated(path):
                return bytes(obstore.get(self._client, self._key(path)).bytes())
        except FileNotFoundError:
            return None

    def open_input(self, path: str) -> pa.NativeFile:
        return pa.PythonFile(Ranged(self.uri(path), self.storage, self._key(path)), mode="r")

    def open_output(self, path: str) -> NewFile:
        def publish(file: pa.NativeFile) -> int:
            data = file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
            try:
                with self._translated(path):  # obstore aborts an upload in parts that fails
                    view = memoryview(data).cast("B")
                    obstore.put(self._client, self._key(path), view, chunk_size=_PART, max_concurrency=4)
            except FileNotFoundError:  # the upload is gone: ended, and the answer was lost; or given up by the store
                if self.size(path) != data.size:
                    raise StorageError(self.uri(path), "its upload in parts is gone", retriable=True) from None
            return data.size

        file = pa.BufferOutputStream()
        return NewFile(file, publish, file.close)

    def put(self, path: str, data: bytes) -> None:
        with self._translated(path):
            obstore.put(self._client, self._key(path), data, use_multipart=False)

    def put_new(self, path: str, data: bytes) -> bool:
        mine, lost = uuid.uuid4().hex, None
        for _ in range(_TRIES):
            try:
                obstore.put(self._client, self._key(path), data, mode="create", attributes={_WRITER: mine})
                return True
            except AlreadyExistsError:  # perhaps our own: obstore asks again after a 500
                lost = None
            except (BaseError, OSError) as error:  # perhaps made all the same: the answer is lost
                lost = storage_error(self.uri(path), self.storage, error)
                if not lost.retriable:
                    raise lost from None
            if (writer := self._writer(path)) is not None:
                return writer == mine
        raise lost or StorageError(self.uri(path), "is refused as already there, and isn't there", retriable=True)

    def _writer(self, path: str) -> str | None:
        """Who made a file; None: there is none."""
        try:
            with self._translated(path):
                found = obstore.get(self._client, self._key(path), options={"head": True})
                return found.attributes.get(_WRITER, "")
        except FileNotFoundError:
            return None

    def names(self, folder: str, *, after: str = "") -> list[tuple[str, int]]:
        return [(name, o["size"]) for name, o in self._objects(folder, after)]

    def commits(self, first: int) -> dict[int, str]:
        found = {n: o for n, o in self._objects("_delta_log", after=f"{first:020d}") if COMMIT.fullmatch(n)}
        return {int(n[:20]): f"{o['e_tag']} {o['last_modified']} {o['size']}" for n, o in found.items()}

    def _objects(self, folder: str, after: str) -> list[tuple[str, Any]]:
        within = self._key(folder) if folder else self._prefix
        with self._translated(folder):
            if after:
                first = f"{within}/{after}".lstrip("/")
                chunks = obstore.list(self._client, within, offset=first, chunk_size=1000)
                objects = [o for chunk in chunks for o in chunk]
            else:
                objects = obstore.list_with_delimiter(self._client, within)["objects"]
        found = ((o["path"][len(within) :].lstrip("/"), o) for o in objects)
        mine = ((n, o) for n, o in found if "/" not in n and n > after and shown(n))
        return sorted(mine, key=lambda named: named[0])

    def below(self, folder: str) -> list[str]:
        return list(self.sizes(folder))

    def sizes(self, folder: str) -> dict[str, int]:
        within = self._key(folder) if folder else self._prefix
        with self._translated(folder):
            chunks = obstore.list(self._client, within, chunk_size=1000)
            found = sorted((o["path"][len(within) :].lstrip("/"), o["size"]) for chunk in chunks for o in chunk)
        return {path: size for path, size in found if shown(path.rpartition("/")[2])}

    def is_here(self) -> bool:
        return True

    def size(self, path: str) -> int | None:
        try:
            with self._translated(path):
                return obstore.head(self._client, self._key(path))["size"]
        except FileNotFoundError:
            return None

    def remove(self, paths: Iterable[str]) -> None:
        keys = [self._key(path) for path in paths]
        with self._translated(""):
            try:
                if keys:
                    obstore.delete(self._client, keys)
            except FileNotFoundError:  # some stores say so, and leave the rest
                for key in keys:
                    with suppress(FileNotFoundError):
                        obstore.delete(self._client, key)

    @property
    def _client(self) -> Any:
        return client(self.root, self.storage)

    @property
    def _prefix(self) -> str:
        return location(self.root)[1]

    def _key(self, path: str) -> str:
        return f"{self._prefix}/{checked(path)}".lstrip("/")

    def _translated(self, path: str) -> AbstractContextManager[None]:
        return translated(self.uri(path), self.storage)
