"""Functions of canonical text → canonical text, of a column's values. Arrow only."""

from collections.abc import Callable
from decimal import InvalidOperation

import pyarrow as pa

Convert = Callable[[pa.StringArray], pa.StringArray]


class Refused(Exception):
    """What the server made of a value isn't told; why."""


def same(texts: pa.StringArray) -> pa.StringArray:
    return texts


def by_text(made: Callable[[str], str]) -> Convert:
    """Each different text once. What isn't of the old type stays as it is: it fits the new one no more."""

    def one(text: str | None) -> str | None:
        try:
            return None if text is None else made(text)
        except (ValueError, InvalidOperation):
            return text

    def convert(texts: pa.StringArray) -> pa.StringArray:
        codes = texts.dictionary_encode()
        return pa.array(map(one, codes.dictionary.to_pylist()), pa.string()).take(codes.indices)

    return convert
