"""Rows' images as maps, out of the texts of their cells."""

import numpy as np
import pyarrow as pa

from cdc_platform.formats.protobuf.arrow import build_maps


def image_maps(text: pa.StringArray, names: pa.StringArray, places: np.ndarray, has_map: np.ndarray) -> pa.MapArray:
    """Places of cells among the texts (row × column, -1: not in the image) → one map per row; null where `has_map` is
    False."""
    n, width = places.shape
    if has_map.all() and places.min(initial=0) >= 0:  # all images are whole: the usual case, in half the time
        keys = names.take(pa.array(np.tile(np.arange(width), n)))
        starts = pa.array(np.arange(n + 1, dtype=np.int32) * width, pa.int32())
        return pa.MapArray.from_arrays(starts, keys, _taken(text, places.ravel()))
    there = (places >= 0) & has_map[:, None]
    row, column = np.nonzero(there)
    return build_maps(row, names.take(pa.array(column)), _taken(text, places[there]), has_map)


def _taken(values: pa.StringArray, places: np.ndarray) -> pa.StringArray:
    """Those in a row needn't be copied."""
    if len(places) and places[-1] - places[0] == len(places) - 1 and (np.diff(places) == 1).all():
        return values.slice(places[0], len(places))
    return values.take(pa.array(places))
