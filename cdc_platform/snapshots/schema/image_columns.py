"""Row images (maps of column name to text) as columns, and back. Arrow only."""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


@dataclass(slots=True)
class ImageColumn:
    """A column of some images: its texts (NULL where an image tells NULL, or lacks it), and which images have it."""

    texts: pa.StringArray
    there: np.ndarray

    def over(self, other: "ImageColumn") -> "ImageColumn":
        """This column, and in images without it the other one."""
        texts = pc.if_else(pa.array(self.there), self.texts, other.texts)
        return ImageColumn(texts, self.there | other.there)

    def where(self, which: np.ndarray) -> "ImageColumn":
        """This column in some of the images; the others lack it."""
        return ImageColumn(pc.if_else(pa.array(which), self.texts, None), self.there & which)


@dataclass(slots=True)
class Images:
    """Images by column. none: which aren't there at all."""

    none: np.ndarray
    columns: dict[str, ImageColumn]

    def rename(self, names: Mapping[str, str | None]) -> None:
        """Gives columns other names; None: takes one away. Two that get the same one (each image has one of them) are
        one column then."""
        before, self.columns = self.columns, {}
        for old, of in before.items():
            if (new := names[old]) is None:
                continue
            other = self.columns.get(new)
            self.columns[new] = of if other is None else of.over(other)

    def fill(self, name: str, text: str | None) -> None:
        """Gives a column to the images that lack it."""
        n = len(self.none)
        of = self.columns.get(name) or ImageColumn(pa.nulls(n, pa.string()), np.zeros(n, bool))
        texts = pc.if_else(pa.array(of.there), of.texts, pa.scalar(text, pa.string()))
        self.columns[name] = ImageColumn(texts, ~self.none)

    def maps(self, first: Sequence[str]) -> pa.MapArray:
        """The images. first: names of columns that stand first in them, in this order."""
        known = [n for n in first if n in self.columns]
        names = [*known, *(n for n in self.columns if n not in known)]
        n = len(self.none)
        there = np.array([self.columns[c].there for c in names], bool).reshape(len(names), n)
        sizes = there.sum(axis=0)
        offsets = np.append(0, np.cumsum(sizes)).astype(np.int32)
        at, column = np.nonzero(there.T)  # image by image
        keys = pa.DictionaryArray.from_arrays(pa.array(column, pa.int32()), pa.array(names, pa.string()))
        every = pa.chunked_array([self.columns[c].texts for c in names], pa.string()).combine_chunks()
        texts = every.take(pa.array(column * n + at))
        places = pa.array(offsets, mask=np.append(self.none, False))
        return pa.MapArray.from_arrays(places, keys.cast(pa.string()), texts)


def image_columns(images: pa.MapArray) -> Images:
    """Images by column, in the order in which the columns first come."""
    n, none = len(images), images.is_null().to_numpy(zero_copy_only=False)
    offsets = images.offsets.to_numpy()
    sizes = np.where(none, 0, np.diff(offsets))
    rows = np.repeat(np.arange(n), sizes)
    entries = np.arange(len(rows)) + np.repeat(offsets[:-1] - (np.cumsum(sizes) - sizes), sizes)
    keys, items = images.keys.take(pa.array(entries)).dictionary_encode(), images.items.take(pa.array(entries))
    codes = keys.indices.to_numpy()
    found: dict[str, ImageColumn] = {}
    for code, name in enumerate(keys.dictionary.to_pylist()):
        mine = np.nonzero(codes == code)[0]
        place = np.full(n, -1, np.int64)
        place[rows[mine]] = mine
        found[name] = ImageColumn(items.take(pa.array(place, mask=place < 0)), place >= 0)
    return Images(none, found)
