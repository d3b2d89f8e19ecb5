"""Sessions that are made while the process does other things."""

import threading

import pytest

from cdc_platform.errors import SetupError
from cdc_platform.spark import prestart


@pytest.fixture
def config(make_config):
    return make_config([{"name": "s", "format": "debezium", "topics": ["t"]}])


@pytest.fixture(autouse=True)
def properties(monkeypatch):
    """What the configuration comes to; nothing is left of what a test began."""
    monkeypatch.setattr(prestart, "spark_config", lambda _: {"spark.master": "local[2]"})
    monkeypatch.setattr(prestart, "_begun", [])
    return {"spark.master": "local[2]"}


def test_a_begun_session_is_given_once_to_who_asks_for_just_that(monkeypatch, config, properties):
    go, made = threading.Event(), []

    def session_of(wanted):
        go.wait(10)
        made.append(wanted)
        return "session"

    monkeypatch.setattr(prestart, "session_of", session_of)
    prestart.begin(config)
    assert not made, "nobody waits for it"
    assert prestart.taken({"spark.master": "local[3]"}) is None
    go.set()
    assert prestart.taken(properties) == "session"
    assert prestart.taken(properties) is None
    assert made == [properties]


def test_who_takes_a_session_gets_the_error_that_making_it_gave(monkeypatch, config, properties):
    def session_of(_):
        raise SetupError("no Java")

    monkeypatch.setattr(prestart, "session_of", session_of)
    prestart.begin(config)
    with pytest.raises(SetupError, match="no Java"):
        prestart.taken(properties)
    assert prestart.taken(properties) is None


def test_a_server_has_its_session_already(monkeypatch, make_config, properties):
    monkeypatch.setattr(prestart, "session_of", None)
    sources = [{"name": "s", "format": "debezium", "topics": ["t"]}]
    prestart.begin(make_config(sources, spark={"remote": "sc://127.0.0.1:1"}))
    assert prestart.taken(properties) is None
