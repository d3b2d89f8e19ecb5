import json

import pytest

from cdc_platform.cli.app import run
from cdc_platform.feeds.publish import Record, publish
from cdc_platform.feeds.tencent_dts import DtsEncoder
from cdc_platform.feeds.workload import Workload

pytestmark = pytest.mark.broker


def test_a_topic_is_recognized_and_an_unknown_one_is_not(broker, capsys):
    servers = broker.bootstrap_servers
    publish(DtsEncoder("inspect-dts", partitions=2).encode(Workload(5, 10).transactions), servers, default_partitions=2)
    publish([Record("inspect-text", 0, None, b"hello") for _ in range(3)], servers, default_partitions=1)

    assert run(["inspect", "inspect-dts", "--bootstrap", servers, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["format"], told["sure"]) == ("tencent_dts", "certain")
    assert told["formats"][0]["parts"] > 0  # the 2 MB row
    assert all(f["why_not"] for f in told["formats"][1:])

    assert run(["inspect", "inspect-text", "--bootstrap", servers, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["records"], told["format"]) == (3, None)

    rows = (
        {"logtype": "mysqlbinlog", "eventtypestr": "insert", "db": "d", "table": "t", "begintime": 5},
        ["1", r"'it\'s'"],
    )
    value = json.dumps({**rows[0], "where": [], "field": rows[1]}).encode()
    publish([Record("inspect-tdsql", 0, None, value)], servers, default_partitions=1)
    assert run(["inspect", "inspect-tdsql", "--bootstrap", servers, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["format"], told["options"]) == ("tdsql", "escapes: backslash")

    assert run(["inspect", "inspect-none", "--bootstrap", servers, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["type"] == "ConfigError"
