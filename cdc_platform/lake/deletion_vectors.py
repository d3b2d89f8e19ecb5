"""Deletion vectors of Delta tables: which rows of a data file don't count any more, as bitmaps of their numbers.

Delta's protocol, "Deletion Vectors" and its appendix "Deletion Vector Format". No Spark here.
"""

import base64
import struct
import uuid
import zlib
from types import TracebackType
from typing import Any, Self

from pyroaring import BitMap64

from cdc_platform.errors import LakeChanged
from cdc_platform.lake.store import File, NewFile, Store, writing

Descriptor = dict[str, Any]
"""What a table's log tells of a vector: storageType, pathOrInlineDv, offset, sizeInBytes, cardinality."""

_MAGIC = struct.pack("<i", 1681511377)
_VERSION = b"\1"
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_TO_Z85, _FROM_Z85 = str.maketrans(_DIGITS, _Z85_DIGITS), str.maketrans(_Z85_DIGITS, _DIGITS)
_ID_LENGTH = 20
"""Characters of a UUID in base 85."""


def read(table: Store, of: Descriptor | None) -> BitMap64:
    """Numbers of the rows of a data file that don't count. of: None where all do. Raises LakeChanged where the vector
    is none, or another than the log tells."""
    if of is None:
        return BitMap64()
    data = _inline(of) if of["storageType"] == "i" else _stored(table, of)
    found = BitMap64.deserialize(data[len(_MAGIC) :]) if data[: len(_MAGIC)] == _MAGIC else None
    if found is None or len(found) != of["cardinality"]:
        raise LakeChanged(table.uri(), f"a deletion vector isn't as its log tells it: {of}")
    return found


def _inline(of: Descriptor) -> bytes:
    return _decoded(of["pathOrInlineDv"])[: of["sizeInBytes"]]


def _stored(table: Store, of: Descriptor) -> bytes:
    with _file(table, of).open() as file:
        file.seek(of.get("offset") or 0)
        (size,) = struct.unpack(">i", file.read(4))
        data = file.read(size)
        if size != of["sizeInBytes"] or file.read(4) != struct.pack(">I", zlib.crc32(data)):
            raise LakeChanged(table.uri(), f"a deletion vector isn't as it was written: {of}")
    return data


def _file(table: Store, of: Descriptor) -> File:
    if (path := path_of(of)) is None:
        raise LakeChanged(table.uri(), f"a deletion vector stands elsewhere: {of}")
    return File(table, path)


def path_of(of: Descriptor | None) -> str | None:
    """Where a vector stands in its table; None: in the log, elsewhere, or there is none."""
    if of is None or of["storageType"] != "u":
        return None
    place = of["pathOrInlineDv"]
    folder, name = place[:-_ID_LENGTH], uuid.UUID(bytes=_decoded(place[-_ID_LENGTH:]))
    return f"{folder}/deletion_vector_{name}.bin".lstrip("/")


def _decoded(text: str) -> bytes:
    return base64.b85decode(text.translate(_FROM_Z85))


class Vectors:
    """New vectors of a table, in one file. There is no file without any, nor after an exception."""

    def __init__(self, table: Store):
        self._table, self._id = table, uuid.uuid4()
        self._new: NewFile | None = None

    def add(self, rows: BitMap64) -> Descriptor:
        """Writes a vector. It is read only once the file is closed."""
        name, data = f"deletion_vector_{self._id}.bin", _MAGIC + rows.serialize()
        with writing(self._table.uri(name)):
            if self._new is None:
                self._new = self._table.open_output(name)
                self._new.file.write(_VERSION)
            offset = self._new.file.tell()
            self._new.file.write(struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data)))
        return {
            "storageType": "u",
            "pathOrInlineDv": base64.b85encode(self._id.bytes).decode().translate(_TO_Z85),
            "offset": offset,
            "sizeInBytes": len(data),
            "cardinality": len(rows),
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _why: BaseException | None, _at: TracebackType | None) -> None:
        if self._new is not None:
            self._new.__exit__(kind, _why, _at)
