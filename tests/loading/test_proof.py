"""Where the feed's newest change stands in a file that the server has purged, on a real MariaDB: without Spark."""

import time

import pytest

from cdc_platform.loading.errors import LoadRefused
from cdc_platform.loading.proof import Event, Evidence, check
from cdc_platform.reconcile.server import Server, dsn_from
from tests.loading.world import DSN_ENV

pytestmark = pytest.mark.oracle


def test_a_purged_file(db, monkeypatch):
    monkeypatch.setenv(DSN_ENV, db.dsn)
    [first, *_] = db._asked("SHOW BINARY LOGS")
    db.run("FLUSH BINARY LOGS")
    oldest = db._asked("SHOW BINARY LOGS")[-1][0]
    for _ in range(100):  # not before the new file says that nothing of the old one is needed to recover
        db.run(f"PURGE BINARY LOGS TO '{oldest}'")
        if db._asked("SHOW BINARY LOGS")[0][0] == oldest:
            break
        time.sleep(0.1)
    of = Evidence("shop", 0, (Event("t/0/5/0", first[0], 4, None, None),))
    with Server(dsn_from(DSN_ENV)).connected() as cursor, pytest.raises(LoadRefused, match="has purged") as refused:
        check(cursor, of)
    assert refused.value.retriable
    assert oldest in str(refused.value)
