"""Functions of canonical text → canonical text, of a column's values. Arrow only."""

from collections.abc import Callable
from decimal import InvalidOperation

import numpy as np
import pyarrow as pa

Convert = Callable[[pa.StringArray], pa.StringArray]
"""May raise Refused."""


class RefusedText(Exception):
    """What the server made of a text isn't told; why."""


class Refused(Exception):
    """What the server made of some values isn't told; why. which: of the values that were given."""

    def __init__(self, why: str, which: np.ndarray):
        super().__init__(why)
        self.which = which


def same(texts: pa.StringArray) -> pa.StringArray:
    return texts


def by_text(made: Callable[[str], str]) -> Convert:
    """Each different text once. What isn't of the old type stays as it is: it fits the new one no more. made: may
    raise RefusedText."""

    def one(text: str | None) -> str | None:
        try:
            return None if text is None else made(text)
        except (ValueError, InvalidOperation):
            return text

    def convert(texts: pa.StringArray) -> pa.StringArray:
        codes = texts.dictionary_encode()
        found: list[str | None] = []
        refused: dict[int, RefusedText] = {}
        for code, text in enumerate(codes.dictionary.to_pylist()):
            try:
                found.append(one(text))
            except RefusedText as why:
                refused[code] = why
        if refused:
            of = codes.indices.fill_null(-1).to_numpy(zero_copy_only=False)
            raise Refused(str(next(iter(refused.values()))), np.isin(of, list(refused)))
        return pa.array(found, pa.string()).take(codes.indices)

    return convert
