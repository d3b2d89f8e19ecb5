"""Places in the log that Debezium's PostgreSQL and SQL Server connectors tell."""

import json
import random

import pytest

from cdc_platform.formats.debezium.connectors import place_in_log, schema_of


def postgresql(commit, lsn):
    return place_in_log({"connector": "postgresql", "sequence": json.dumps([commit and str(commit), str(lsn)])})


def test_places_never_descend_where_transactions_interleave():
    """A log of interleaved transactions, sent as logical decoding does: whole transactions, in the order of commits."""
    chance = random.Random(7)
    lsn, open_, sent, last_commit = 0, [], [], None
    for _ in range(5000):
        lsn += chance.randint(1, 9)
        if open_ and chance.random() < 0.3:
            done = open_.pop(chance.randrange(len(open_)))
            sent += [postgresql(last_commit, at) for at in done]
            last_commit = lsn
        elif open_ and chance.random() < 0.7:
            chance.choice(open_).append(lsn)
        else:
            open_.append([lsn])
    places = [(p.number, p.pos) for p in sent]
    assert len(places) > 1000
    assert places == sorted(places)
    assert [p.pos for p in sent] != sorted(p.pos for p in sent), "the LSN alone descends"


def test_what_a_connector_leaves_out_is_no_place():
    assert place_in_log({"connector": "postgresql"}) == (None, None, None)
    assert place_in_log({"connector": "postgresql", "sequence": '["5",null]'}) == (None, None, None)
    assert place_in_log({"connector": "sqlserver", "commit_lsn": None}) == (None, None, None)


def test_the_largest_places():
    assert postgresql(2**63 - 1, 2**64 - 1) == ("7FFFFFFF/FFFFFFFF", 2**63 - 1, 2**64 - 1)
    found = place_in_log({"connector": "sqlserver", "commit_lsn": "7fffffff:ffffffff:ffff"})
    assert found == ("7fffffff:ffffffff", 2**63 - 1, 65535)


@pytest.mark.parametrize(
    "source",
    [
        {"connector": "postgresql", "sequence": '["a","1"]'},
        {"connector": "postgresql", "sequence": '["1"]'},
        {"connector": "postgresql", "sequence": '["-1","2"]'},
        {"connector": "postgresql", "sequence": 5},
        {"connector": "sqlserver", "commit_lsn": "00000027:00000758"},
        {"connector": "sqlserver", "commit_lsn": 7},
        {"connector": "sqlserver", "commit_lsn": "ffffffff:ffffffff:ffff"},
    ],
)
def test_what_is_no_place_is_refused(source):
    with pytest.raises(ValueError, match="source"):
        place_in_log(source)


def test_only_databases_with_schemas_have_one():
    assert schema_of({"connector": "postgresql", "schema": "public"}) == "public"
    assert schema_of({"connector": "postgresql", "schema": ""}) is None
    assert schema_of({"connector": "mysql", "schema": "x"}) is None
    assert schema_of({"schema": "x"}) is None
