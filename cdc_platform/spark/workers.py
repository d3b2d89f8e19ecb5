"""What Spark's Python workers do before they work with Arrow."""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder

import pyarrow as pa


class _NoPandas(MetaPathFinder):
    """Who imports pandas while this is asked first doesn't find it."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> None:
        """Raises ModuleNotFoundError for pandas; other modules are for those who are asked next."""
        del path, target
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname)


def configure() -> None:
    """Memory goes back when it isn't needed: Arrow's own allocator keeps what it once had, 50 MB more per worker, and
    isn't faster. And pandas stays out, 46 MB and a quarter of a second of each worker: Arrow imports it, where it can,
    with the first list that it is given (pyarrow/pandas-shim.pxi), only to see that this is no Series."""
    pa.set_memory_pool(pa.system_memory_pool())
    if "pandas" in sys.modules:
        return
    nowhere = _NoPandas()
    sys.meta_path.insert(0, nowhere)
    try:
        pa.array([])  # Arrow tries once
    finally:
        sys.meta_path.remove(nowhere)
