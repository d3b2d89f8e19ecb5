"""What a worker has in memory before it works."""

import subprocess
import sys

WORKER = """
import sys
import pyarrow as pa
from cdc_platform.spark import workers
for _ in range(2):
    workers.configure()
    grouped = pa.table({"a": ["x", "y", "x"], "n": [1, 2, 3]}).group_by(["a"]).aggregate([("n", "max")])
print(sorted(grouped.to_pydict()["n_max"]), "pandas" in sys.modules, pa.default_memory_pool().backend_name)
import pandas
print(pandas.__name__)
"""


def test_tables_are_grouped_without_pandas():
    done = subprocess.run([sys.executable, "-c", WORKER], capture_output=True, text=True, check=False)
    assert (done.stdout.splitlines(), done.stderr) == (["[2, 3] False system", "pandas"], "")
