"""Plain messages, by the descriptor of their type: their fields as Arrow arrays, as a parser gives them."""

from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from cdc_platform.formats.protobuf.arrow import as_lists
from cdc_platform.formats.protobuf.in_place import Fields, Texts, read_plain

_NUMBERS = {
    FieldDescriptor.TYPE_INT32: np.int32,
    FieldDescriptor.TYPE_ENUM: np.int32,
    FieldDescriptor.TYPE_INT64: np.int64,
    FieldDescriptor.TYPE_BOOL: np.bool_,
}


class NotPlain(Exception):
    """Messages that are left to a parser to read, or to refuse."""


class Layout:
    """A type of messages whose fields are numbers, texts, bytes or messages. `absent`: what a number is that isn't
    there, where that isn't 0."""

    def __init__(self, message: type[Message], **absent: int):
        fields: list[Any] = sorted(message.DESCRIPTOR.fields, key=lambda f: f.number)
        self.types: dict[str, int] = {f.name: f.type for f in fields}
        self.tags = {f.name: f.number << 3 | (0 if f.type in _NUMBERS else 2) for f in fields}
        self.plain = Fields(
            tuple(self.tags.values()),
            frozenset(self.tags[f.name] for f in fields if f.is_repeated),
            {self.tags[name]: number for name, number in absent.items()},
        )
        self.lists = {
            f.name: Layout(GetMessageClass(f.message_type)) for f in fields if f.is_repeated and f.message_type
        }

    def read(self, values: Texts) -> "Read":
        """Serialized messages → their fields. Raises NotPlain."""
        return Read(self, values)


class Read:
    """What serialized messages of a layout hold."""

    def __init__(self, layout: Layout, values: Texts):
        """Raises NotPlain."""
        self._layout = layout
        found = read_plain(values, layout.plain)
        if found is None:
            raise NotPlain
        self._found = found

    def number(self, name: str) -> np.ndarray:
        """A number of each message, as wide as its type is."""
        return self._found.numbers[self._layout.tags[name]].astype(_NUMBERS[self._layout.types[name]])

    def texts(self, name: str) -> Texts:
        """Texts, bytes or messages where they lie: one of each message, or all of a repeated field."""
        return self._found.texts[self._layout.tags[name]]

    def lengths(self, name: str) -> np.ndarray:
        """How many each message has of a repeated field."""
        return self._found.counts[self._layout.tags[name]]

    def arrays(self, *names: str) -> dict[str, pa.Array]:
        """Fields as a parser gives them. Raises NotPlain, also where a text is no UTF-8."""
        return {name: self._array(name) for name in names}

    def _array(self, name: str) -> pa.Array:
        type_, inner = self._layout.types[name], self._layout.lists.get(name)
        if type_ in _NUMBERS:
            return pa.array(self.number(name))
        if inner is not None:
            values = inner.read(self.texts(name)).arrays(*inner.types)
            return as_lists(self.lengths(name), pa.StructArray.from_arrays(list(values.values()), list(values)))
        try:
            return self.texts(name).strings() if type_ == FieldDescriptor.TYPE_STRING else self.texts(name).bytes()
        except pa.ArrowInvalid:
            raise NotPlain from None
