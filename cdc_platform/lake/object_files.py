"""What a lake in a bucket needs besides obstore: clients that a process shares, errors as StorageError, and files that
are read by ranges."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from typing import Any

import obstore
from obstore.exceptions import BaseError, GenericError, NotSupportedError
from obstore.store import S3Store

from cdc_platform.config.storage import Storage
from cdc_platform.errors import ConfigError, StorageError

_TAIL = 1 << 16
"""Bytes at a file's end that its first request reads: a Parquet footer, or all of a small file."""
_RETRIES: Any = {"max_retries": 7, "retry_timeout": timedelta(seconds=90)}
_CLIENT: dict[str, Any] = {"connect_timeout": "5s", "timeout": "30s"}

_LOCATION = re.compile(r"^[^:]+://([^/@]+)(?:/(.*))?$")

_ADDRESS = "the address of `storage.endpoint`, or of AWS_ENDPOINT_URL"
_FINAL = (
    (r"NoSuchBucket|bucket does not exist", "there is no such bucket"),
    (
        r"169\.254\.169\.254|no credential|credential error|loading credentials|Missing (Secret)?AccessKey",
        "there are no credentials: give them under `storage:`, or in the environment",
    ),
    (
        r"InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|InvalidToken|status code: 401",
        "the store refuses the credentials under `storage:`, or those of the environment",
    ),
    (r"AccessDenied|status code: 403", "the credentials lack a right"),
    (
        r"PermanentRedirect|AuthorizationHeaderMalformed|IllegalLocationConstraint|status code: 30\d",
        "the bucket is of another region: storage.region",
    ),
    (
        r"builder error|scheme is not allowed|dns error|InvalidContentType",
        f"no store answers at {_ADDRESS}",
    ),
    (r"invalid peer certificate|CertificateUnknown|UnknownIssuer", "the store's certificate isn't trusted"),
    (r"status code: 4(?!08|09|29)\d\d", ""),
)
"""What a retry doesn't mend: pattern of an error's text → what it means."""
_TELLING = 4
"""Characters from which on a secret is replaced in messages: a shorter one stands in other words, too."""
_CAUSE = re.compile(r"dns error|Connection (?:refused|reset)|invalid peer certificate: \w+|TimedOut|timed out")
_CODE = re.compile(r"<Code>([^<]*)</Code>(?:.*?<Message>([^<]*)</Message>)?", re.DOTALL)
_SIGNED = re.compile(r"(?i)\b(sig|x-amz-(?:signature|credential|security-token))=[^&\s\"]+")


def location(uri: str) -> tuple[str, str]:
    """An object store's URI → bucket and folder in it. Raises ConfigError."""
    found = _LOCATION.match(uri)
    if found is None or re.search(r"[?#%\\\x00-\x1f]|/\.{0,2}/|/\.\.?$", uri.split("://", 1)[-1]):
        raise ConfigError("lake", f"{uri!r} is no place in a store", ["scheme://bucket/folder, without ? # % and .."])
    bucket, folder = found.groups()
    return bucket, folder or ""


def client(uri: str, storage: Storage) -> Any:
    """obstore's client of the bucket in which a URI is; one per process, with its connections. Raises ConfigError,
    StorageError."""
    return _client("/".join(uri.split("/", 3)[:3]), storage, os.getpid())  # pyright: ignore[reportArgumentType]


@lru_cache(maxsize=8)
def _client(bucket_uri: str, storage: Storage, _process: int) -> Any:
    bucket, _ = location(bucket_uri)
    config: Any = storage.store_options(bucket_uri)
    options: Any = {**_CLIENT, "allow_http": storage.allow_http}
    with translated(bucket_uri, storage):
        return S3Store(bucket, config=config, client_options=options, retry_config=_RETRIES)


@contextmanager
def translated(uri: str, storage: Storage) -> Iterator[None]:
    """Raises StorageError for what obstore raises; FileNotFoundError is passed on where the bucket is there."""
    try:
        yield
    except FileNotFoundError as error:
        if re.search(_FINAL[0][0], str(error)):
            raise storage_error(uri, storage, error) from None
        raise FileNotFoundError(uri) from None
    except (BaseError, OSError) as error:
        raise storage_error(uri, storage, error) from None


def storage_error(uri: str, storage: Storage, error: BaseException) -> StorageError:
    """What obstore's error says, in a line and without secrets."""
    text = str(error)
    shown, _, inner = text.partition("\n\nDebug source")
    code, cause = _CODE.search(shown), _CAUSE.search(inner)
    parts = [" ".join(re.sub(r"<.*", "", shown, flags=re.DOTALL).split())[:300]]
    parts += [": ".join(filter(None, code.groups()))] if code else []
    parts += [cause[0]] if cause else []
    final = next((meaning for pattern, meaning in _FINAL if re.search(pattern, text)), None)
    refused = cause is not None and cause[0] == "Connection refused"
    meaning = final or (f"nothing answers at {_ADDRESS}" if refused else None)
    problem = (f"{meaning}: " if meaning else "") + " ".join(parts)
    for secret in storage.secrets:
        if len(secret) >= _TELLING:
            problem = problem.replace(secret, "***")
    return StorageError(uri, _SIGNED.sub(r"\1=***", problem), retriable=final is None)


@lru_cache(maxsize=128)
def _end(uri: str, storage: Storage, key: str) -> tuple[int, bytes]:
    """Size and last bytes of a file that never changes: one of data is opened for its footer, its keys and its rows."""
    with translated(uri, storage):
        try:
            end = obstore.get(client(uri, storage), key, options={"range": {"suffix": _TAIL}})
            return end.meta["size"], bytes(end.bytes())
        except (NotSupportedError, GenericError) as error:  # an empty file has no such range
            if not re.search("NotSupported|NotPartial|InvalidRange|status code: 416", str(error)):
                raise
            size = obstore.head(client(uri, storage), key)["size"]
            return size, _range(uri, storage, key, max(0, size - _TAIL), size)


def _range(uri: str, storage: Storage, key: str, start: int, end: int) -> bytes:
    with translated(uri, storage):
        return bytes(obstore.get_range(client(uri, storage), key, start=start, end=end)) if end > start else b""


class Ranged:
    """A file of an object store as Python's files are, read by ranges; for pyarrow.PythonFile. Raises
    FileNotFoundError, StorageError."""

    def __init__(self, uri: str, storage: Storage, key: str):
        self._uri, self._storage, self._key = uri, storage, key
        self._at, self.closed = 0, False
        end = _end if uri.endswith(".parquet") and "/_delta_log/" not in uri else _end.__wrapped__
        self._size, self._tail = end(uri, storage, key)  # pyright: ignore[reportArgumentType]

    def read(self, size: int | None = -1) -> bytes:
        """The next bytes, at most so many."""
        end = self._size if size is None or size < 0 else min(self._at + size, self._size)
        start, self._at, first = self._at, max(self._at, end), self._size - len(self._tail)
        return self._tail[start - first : max(end, start) - first] if start >= first else self._range(start, end)

    def _range(self, start: int, end: int) -> bytes:
        return _range(self._uri, self._storage, self._key, start, end)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """As io.IOBase.seek."""
        self._at = max(0, {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence] + offset)
        return self._at

    def tell(self) -> int:
        """As io.IOBase.tell."""
        return self._at

    def readable(self) -> bool:
        """As io.IOBase.readable."""
        return True

    def seekable(self) -> bool:
        """As io.IOBase.seekable."""
        return True

    def close(self) -> None:
        """As io.IOBase.close."""
        self.closed = True
