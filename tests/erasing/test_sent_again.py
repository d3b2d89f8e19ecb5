"""A capture that is set back sends a part of the log again, with what was erased of it."""

import copy
import json
from typing import Any

import pytest

from cdc_platform import tables
from cdc_platform.cli import attention
from cdc_platform.cli.app import run as command
from cdc_platform.erasing.errors import EraseRefused
from cdc_platform.formats import FORMATS
from cdc_platform.lake import delta_table, stores
from cdc_platform.replay.run import replay
from tests.erasing.bytes import holding
from tests.erasing.people import MAIL, SECRET, erasure, filled, lake, rows

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.oracle, pytest.mark.timeout(600)]


def send_again(w: Any, since: int, capture: Any) -> None:
    """capture: as it was then."""
    w.sent, w.encoder = since, copy.deepcopy(capture)
    w.publish()
    w.catch_up()


def told(w: Any) -> list[str]:
    return [f.text for f in attention.of_lake(w.config, [w.source])]


@pytest.mark.thorough
@pytest.mark.parametrize("format", ["debezium", "canal", "tencent_dts", "dataworks"])
def test_what_was_erased_is_known_when_the_log_is_sent_again(world, format, capsys):
    """Rows without a key aren't there twice, no statement is applied again, and the row stays away."""
    w, name = world(format), f"again_{format}"
    since, capture = len(w.db.log()), copy.deepcopy(w.encoder)
    filled(w, name)
    by_arrival = FORMATS[format].order == "arrival"
    key = "" if by_arrival else "n int NOT NULL AUTO_INCREMENT PRIMARY KEY, "
    w.db.create(f"visits_{format}", f"({key}who int, at varchar(20))")
    w.db.run(f"INSERT INTO visits_{format} (who, at) VALUES (1, 'monday'), (1, 'monday'), (2, 'tuesday')")
    w.db.alter(f"visits_{format}", "ADD COLUMN room int" + " DEFAULT 3" * by_arrival)
    w.db.run(
        f"INSERT INTO visits_{format} (who, at) VALUES (7, 'friday')", f"UPDATE {name} SET mail = 'x' WHERE id = 7"
    )
    w.publish()
    w.catch_up()
    assert w.problems(name, f"visits_{format}") == []
    expected = {k: v for k, v in rows(w, name).items() if k != 7}
    assert erasure(w, name).erase(w.spark)["proof"]["left"] == 0
    assert told(w) == []

    w.db.run(f"UPDATE {name} SET mail = 'newer' WHERE id = 2")
    send_again(w, since, capture)
    assert rows(w, name) == {**expected, 2: {**expected[2], "mail": "newer"}}
    assert w.problems(f"visits_{format}") == []
    path = tables.CHANGELOG.at(stores.lake(w.config))
    assert delta_table.ask("SELECT DISTINCT order_key['epoch'] AS epoch FROM {t}", t=path) == [{"epoch": 0}]
    assert [r["unaccounted"] for r in w.ledger()] == [0] * len(w.ledger())
    assert replay(w.spark, w.config, w.source)["equal"]

    [finding] = told(w)
    assert finding.startswith(f"erasure 1 of a row of oracle.{name}: ")
    assert "sent again and are landed" in finding
    capsys.readouterr()
    assert command(["status", "--json", "--config", str(w.file)]) == 1
    assert finding in [f["text"] for f in json.loads(capsys.readouterr().out)["findings"]]
    command(["certify", w.source.name, f"oracle.{name}", "--config", str(w.file)])
    assert "sent again" in capsys.readouterr().out
    assert holding(lake(w), SECRET, MAIL) != []
    assert erasure(w, name).erase(w.spark)["proof"]["left"] == 0
    assert told(w) == []
    assert holding(lake(w), SECRET, MAIL) == []
    with pytest.raises(EraseRefused, match="gone already: erasure 2"):
        erasure(w, name).erase(w.spark)
    send_again(w, since, capture)
    assert rows(w, name) == {**expected, 2: {**expected[2], "mail": "newer"}}
    assert w.problems(f"visits_{format}") == []
