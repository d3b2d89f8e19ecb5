"""Secrets come from the environment only: written out they are refused, by their key and never with their value."""

import pytest

from cdc_platform.config import parse_config
from cdc_platform.errors import ConfigError, ConfigErrors
from tests.config.test_config import raw

PLAIN = "hunter2-canary"

SECRETS = [
    "sasl.password",
    "ssl.key.password",
    "ssl.keystore.password",
    "ssl.truststore.password",
    "ssl.keystore.key",
    "ssl.key.pem",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "basic.auth.user.info",
]
SPARK_SECRETS = [
    "spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net",
    "spark.hadoop.fs.azure.account.oauth2.client.secret",
    "spark.hadoop.fs.s3a.access.key",
    "spark.hadoop.fs.s3a.secret.key",
    "spark.hadoop.fs.s3a.session.token",
    "spark.hadoop.fs.gs.auth.service.account.private.key",
    "spark.authenticate.secret",
    "spark.ssl.keyPassword",
]
NO_SECRETS = {
    "sasl.username": "me",
    "sasl.mechanism": "PLAIN",
    "ssl.key.location": "/etc/key.pem",
    "ssl.keystore.certificate.chain": "-----BEGIN CERTIFICATE-----",
    "sasl.oauthbearer.token.endpoint.url": "https://login.example.com/token",
    "sasl.oauthbearer.client.id": "cdc",
    "spark.hadoop.fs.s3a.aws.credentials.provider": "com.example.Provider",
    "spark.hadoop.hadoop.security.credential.provider.path": "jceks://file/etc/x",
    "spark.authenticate.secret.file": "/etc/secret",
    "spark.security.credentials.kafka.enabled": False,
    "sasl.password": "",
}


def told(mapping) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse_config(mapping)
    error = caught.value
    assert PLAIN not in str(error) + repr(error) + repr(vars(error)) + "".join(error.lines)
    return error


@pytest.mark.parametrize("key", SECRETS)
@pytest.mark.parametrize("place", ["kafka", "sources[0].kafka", "bridges[0].kafka"])
def test_a_kafka_secret_written_out_is_refused(key, place):
    bridge = {"name": "b", "servers": ["h"], "destination": "d", "topic": "t"}
    properties = {"bootstrap.servers": "h:1", key: PLAIN}
    mapping = {
        "kafka": raw(kafka=properties),
        "sources[0].kafka": raw({"kafka": properties}),
        "bridges[0].kafka": raw(bridges=[{**bridge, "kafka": properties}]),
    }[place]
    error = told(mapping)
    assert (error.key, error.valid) == (f"{place}.{key}", ("${ENV_VAR}",))


@pytest.mark.parametrize("key", SPARK_SECRETS)
def test_a_spark_secret_written_out_is_refused(key):
    assert told(raw(spark={"conf": {key: PLAIN}})).key == f"spark.conf.{key}"


@pytest.mark.parametrize("key", [*SECRETS, "sasl.jaas.config"])
def test_a_secret_from_the_environment_is_taken(key, monkeypatch):
    monkeypatch.setenv("KAFKA_SECRET", PLAIN)
    assert parse_config(raw(kafka={key: "${KAFKA_SECRET}"})).kafka[key] == PLAIN


def test_a_number_is_a_password_too():
    assert told(raw(kafka={"sasl.password": 12345678})).key == "kafka.sasl.password"


@pytest.mark.parametrize("value", [PLAIN, f"x-${{HOME}}-{PLAIN}", f"${{HOME}}{PLAIN}"])
def test_a_password_that_only_begins_in_the_environment_is_written_out(value):
    assert told(raw(kafka={"sasl.password": value})).key == "kafka.sasl.password"


@pytest.mark.parametrize(
    ("secret", "taken"),
    [("${KAFKA_SECRET}", True), (PLAIN, False), (f"${{KAFKA_SECRET}}{PLAIN}", False)],
)
def test_only_the_secret_of_a_login_module_must_come_from_the_environment(secret, taken, monkeypatch):
    monkeypatch.setenv("KAFKA_SECRET", "from-env")
    text = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="{secret}";'
    mapping = raw(kafka={"sasl.jaas.config": text})
    if taken:
        assert 'password="from-env"' in parse_config(mapping).kafka["sasl.jaas.config"]
    else:
        assert told(mapping).key == "kafka.sasl.jaas.config"


def test_a_login_in_a_url_is_a_secret():
    assert told(raw(kafka={"schema.registry.url": f"https://me:{PLAIN}@registry"})).key == "kafka.schema.registry.url"


def test_what_names_no_secret_may_be_written_out():
    parse_config(raw(kafka=NO_SECRETS, spark={"conf": NO_SECRETS}))


def test_a_secret_is_told_beside_other_errors():
    error = told(raw({"start": "now"}, kafka={"sasl.password": PLAIN}))
    assert isinstance(error, ConfigErrors)
    assert {e["key"] for e in error.errors} == {"kafka.sasl.password", "sources[0].start"}
