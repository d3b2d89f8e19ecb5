"""Which rows of a table's files are the subject's."""

import numpy as np
import pyarrow as pa

from cdc_platform.erasing.rewrite import Rows
from cdc_platform.explain.scan import Alike


def test_rows_of_a_key_of_a_time_and_a_text():
    """A text that looks as another one without its Z or its zeros is another subject's."""
    at = ["2026-01-01 00:00:00"] * 4
    batch = pa.RecordBatch.from_pydict({"at": [*at, f"{at[0]}.0"], "code": ["JA", "JAZZ", "1.1", "1.10", "JAZZ"]})
    alike = [Alike("datetime"), Alike("varchar")]

    def found(code: str) -> list[int]:
        return np.nonzero(Rows(("at", "code"), [[at[0], code]], alike).mine(batch))[0].tolist()

    assert (found("JAZZ"), found("JA"), found("1.10")) == ([1, 4], [0], [3])
