"""The resource of the Spark session: which server a run's session is of."""

import pytest

from cdc_platform.config import Config
from cdc_platform.definitions import spark_resource
from cdc_platform.spark.connect import with_remote

OWN = "sc://localhost:20001"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, str], str | None]]:
    """Properties and address of each session that is made."""
    found: list[tuple[dict[str, str], str | None]] = []
    monkeypatch.setattr("cdc_platform.spark.session.session_of", dict)
    monkeypatch.setattr("cdc_platform.spark.session.prepare", lambda of, at, _: found.append((of, at)) or of)
    return found


def test_what_is_launched_again_goes_to_the_server_of_now(config: Config, monkeypatch, asked):
    """The Launchpad writes a resource's configuration into the run's, and each `ui` has a server on another port."""
    monkeypatch.setenv("CDC_SPARK_REMOTE", OWN)
    resource = spark_resource(with_remote(config, OWN))
    assert resource.spark_config == {}
    assert resource.spark_session == {"spark.remote": OWN}
    assert asked == [({"spark.remote": OWN}, OWN)]


def test_a_server_of_cdc_yaml_is_shown(config: Config, monkeypatch, asked):
    monkeypatch.delenv("CDC_SPARK_REMOTE", raising=False)
    resource = spark_resource(with_remote(config, "sc://spark:15002"))
    assert resource.spark_config == {"spark.remote": "sc://spark:15002"}


def test_a_server_that_a_runs_configuration_names_is_the_one_that_errors_name(config: Config, monkeypatch, asked):
    monkeypatch.setenv("CDC_SPARK_REMOTE", OWN)
    resource = spark_resource(with_remote(config, OWN))
    other = type(resource)(spark_config={"spark.remote": "sc://other:1"})
    assert other.spark_session == {"spark.remote": "sc://other:1"}
    assert asked == [({"spark.remote": "sc://other:1"}, "sc://other:1")]
