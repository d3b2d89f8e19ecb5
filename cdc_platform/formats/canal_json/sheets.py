"""Rows of one group whose cells are all texts, kept in Arrow as they come: Python's objects of some messages are
free again before the next are parsed, and what needs no conversion is an image as it stands.
"""

from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from cdc_platform.formats.canal_json.messages import Changes


class Old:
    """The values in `old` of some rows, one after another, with their rows and columns."""

    def __init__(self, names: tuple[str, ...], olds: list[dict[str, Any] | None]):
        places = {name: c for c, name in enumerate(names)}
        cells = [old or {} for old in olds]
        self.values = list(chain.from_iterable(map(dict.values, cells)))
        self.row = np.repeat(np.arange(len(cells)), list(map(len, cells)))
        self.column = np.fromiter(map(places.__getitem__, chain.from_iterable(cells)), np.int64, len(self.values))


class Sheet:
    """Such rows, all with the columns `names`. `fields`: what else is known of them; its `data` and `old` are empty.
    Row i has the cells from i * width, and `old_cells` follow behind the last row's."""

    def __init__(self, names: tuple[str, ...]):
        self.names = names
        self.fields = Changes([], [], [], [], [], [], [], [], [])
        self._cells: list[pa.StringArray] = []
        self._old_cells: list[pa.StringArray] = []
        self._has_old: list[list[bool]] = []
        self._old_places: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, changes: Changes) -> None:
        """More of them: each has all columns of the group, in its order."""
        old, before = Old(self.names, changes.old), len(self.fields)
        self._cells.append(pa.array(list(chain.from_iterable(map(dict.values, changes.data))), pa.string()))
        self._old_cells.append(pa.array(old.values, pa.string()))
        self._old_places.append((old.row + before, old.column))
        self._has_old.append([o is not None for o in changes.old])
        for mine, more in zip(self.fields.lists(), changes.lists(), strict=True):
            if more is not changes.data and more is not changes.old:
                mine.extend(more)

    def text(self) -> pa.StringArray:
        """All cells, as they were sent."""
        return pa.concat_arrays([*self._cells, *self._old_cells])

    def old(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns of the old cells."""
        row, column = zip(*self._old_places, strict=True)
        return np.concatenate(row), np.concatenate(column)

    def has_old(self) -> np.ndarray:
        """Which rows have an `old`."""
        return np.array(list(chain.from_iterable(self._has_old)), bool)

    def changes(self) -> Changes:
        """The rows as they were added."""
        text, width = self.text().to_pylist(), len(self.names)
        rows = range(len(self.fields))
        data = [dict(zip(self.names, text[i * width : (i + 1) * width], strict=True)) for i in rows]
        old: list[dict[str, Any] | None] = [{} if has else None for has in self.has_old().tolist()]
        for i, c, value in zip(*(a.tolist() for a in self.old()), text[len(rows) * width :], strict=True):
            old[i][self.names[c]] = value
        return replace(self.fields, data=data, old=old)
