"""A workload with all that is known of it."""

import tempfile
from pathlib import Path
from typing import Any

from cdc_platform.feeds.workload import Transaction
from tests.oracle import server
from tests.oracle.binlog import transactions
from tests.oracle.session import Told
from tests.oracle.workload import Workload


def made(seed: int, changes: int, ddl: int, checkpoints: int = 3, **more: Any) -> tuple[list[Transaction], Told]:
    """A workload, run on a server of its own: what its binlog says, and what the database said."""
    with tempfile.TemporaryDirectory(prefix="oracle") as folder, server.running(Path(folder)) as running:
        told = Workload(running, seed, **more).run(changes, ddl, checkpoints)
        return list(transactions(running, told.ddl)), told
