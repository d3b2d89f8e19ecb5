"""`storage:` in cdc.yaml: one section, out of which obstore, delta-rs and Spark get theirs; secrets are never shown."""

import json

import pytest
from pydantic import SecretStr

from cdc_platform.config import Storage, parse_config
from cdc_platform.config.storage import kind
from cdc_platform.errors import ConfigError
from tests.config.test_config import raw, refused

CANARY = "hunter2-canary"
S3 = {"endpoint": "http://127.0.0.1:9000/", "region": "eu-west-1", "access_key": CANARY, "secret_key": CANARY}
SECRETS = [name for name, field in Storage.model_fields.items() if field.annotation == SecretStr | None]


def test_nothing_given_leaves_all_to_the_environment():
    storage = parse_config(raw()).storage
    assert storage.delta_options("s3a://b/x") == {"AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false"}
    assert storage.spark_options("s3a://b/x") == {"spark.hadoop.fs.s3a.path.style.access": "true"}
    uri = "/data/lake"
    assert (storage.store_options(uri), storage.delta_options(uri), storage.spark_options(uri)) == ({}, {}, {})


def test_each_reader_of_s3_gets_its_own_names():
    storage = Storage.model_validate({**S3, "session_token": "t"})
    assert storage.delta_options("s3://b/x") == {
        "AWS_REGION": "eu-west-1",
        "AWS_ACCESS_KEY_ID": CANARY,
        "AWS_SECRET_ACCESS_KEY": CANARY,
        "AWS_SESSION_TOKEN": "t",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false",
        "AWS_ENDPOINT": "http://127.0.0.1:9000",
        "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9000",
        "AWS_ALLOW_HTTP": "true",
    }
    assert storage.spark_options("s3://b/x") == {
        "spark.hadoop.fs.s3a.endpoint": "http://127.0.0.1:9000",
        "spark.hadoop.fs.s3a.endpoint.region": "eu-west-1",
        "spark.hadoop.fs.s3a.access.key": CANARY,
        "spark.hadoop.fs.s3a.secret.key": CANARY,
        "spark.hadoop.fs.s3a.session.token": "t",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
    }


def test_a_bucket_may_stand_in_the_host_name():
    storage = Storage(endpoint="https://cos.example.com", path_style=False)
    assert storage.store_options("s3://b/x")["aws_endpoint"] == "https://b.cos.example.com"
    assert storage.store_options("s3://b/x")["aws_virtual_hosted_style_request"] == "true"
    assert storage.spark_options("s3://b/x") == {
        "spark.hadoop.fs.s3a.endpoint": "https://cos.example.com",
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "false",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "true",
    }


def test_spark_takes_address_and_region_of_the_environment_too(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    assert Storage().spark_options("s3://b/x") == {
        "spark.hadoop.fs.s3a.endpoint": "http://127.0.0.1:1",
        "spark.hadoop.fs.s3a.endpoint.region": "eu-west-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
    }


def test_what_travels_has_the_address_and_region_of_the_environment(monkeypatch):
    assert Storage().settled() == Storage()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1/")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CANARY)
    assert Storage().settled() == Storage(endpoint="http://127.0.0.1:1", region="us-east-1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    assert Storage(path_style=False).settled() == Storage(
        endpoint="http://127.0.0.1:1", region="eu-west-1", path_style=False
    )
    given = Storage(endpoint="http://127.0.0.1:2", region="x")
    assert given.settled() == given


@pytest.mark.parametrize("key", ["endpoint", "path.style.access", "bucket.lake.endpoint", "secret.key"])
def test_what_storage_gives_is_not_given_to_spark_alone(key, monkeypatch):
    monkeypatch.setenv("CANARY", CANARY)
    error = refused(raw(spark={"conf": {f"spark.hadoop.fs.s3a.{key}": "${CANARY}"}}))
    assert error.key == f"spark.conf.spark.hadoop.fs.s3a.{key}"
    assert [v.split(".")[0] for v in error.valid] == ["storage"]
    assert CANARY not in str(error)
    parse_config(raw(spark={"conf": {"spark.hadoop.fs.s3a.connection.maximum": "50"}}))


@pytest.mark.parametrize(
    "key", ["spark.delta.logStore.s3a.impl", "spark.delta.logStore.class", "spark.delta.logStore.file.impl"]
)
def test_another_log_store_is_refused(key):
    assert "would lose commits" in str(refused(raw(spark={"conf": {key: "x"}})))


@pytest.mark.parametrize(
    "endpoint", ["minio:9000", "ftp://h", "https://h/path", f"https://me:{CANARY}@h", "https://h?x"]
)
def test_an_address_is_no_more_than_that(endpoint):
    error = refused(raw(storage={"endpoint": endpoint}))
    assert error.key == "storage.endpoint"
    assert CANARY not in str(error)


def test_an_unknown_key_names_the_valid_ones():
    error = refused(raw(storage={"acces_key": "${HOME}"}))
    assert (error.key, error.valid) == ("storage.acces_key", tuple(Storage.model_fields))


@pytest.mark.parametrize(
    "given",
    [{"access_key": "${CANARY}"}, {"session_token": "${CANARY}"}],
)
def test_what_belongs_together_is_given_together(given, monkeypatch):
    monkeypatch.setenv("CANARY", CANARY)
    error = refused(raw(storage=given))
    assert error.key == "storage"
    assert CANARY not in str(error)


def test_a_token_of_the_environment_does_not_go_with_other_keys(monkeypatch):
    monkeypatch.setenv("AWS_SESSION_TOKEN", CANARY)
    monkeypatch.setenv("CANARY", CANARY)
    keys = {"access_key": "${CANARY}", "secret_key": "${CANARY}"}
    error = refused(raw(storage=keys))
    assert "AWS_SESSION_TOKEN" in str(error)
    assert CANARY not in str(error)
    parse_config(raw(storage={**keys, "session_token": "${AWS_SESSION_TOKEN}"}))


@pytest.mark.parametrize("key", SECRETS)
def test_a_secret_comes_from_the_environment_and_is_not_shown(key, monkeypatch):
    monkeypatch.setenv("CANARY", CANARY)
    whole = {"access_key": "${CANARY}", "secret_key": "${CANARY}", key: "${CANARY}"}
    error = refused(raw(storage={**whole, key: CANARY}))
    assert (error.key, error.valid) == (f"storage.{key}", ("${ENV_VAR}",))
    assert CANARY not in str(error) + repr(error) + repr(vars(error))
    config = parse_config(raw(storage=whole))
    assert CANARY not in repr(config) + str(config) + json.dumps(config.storage.model_dump(mode="json"))
    assert CANARY in config.storage.secrets


def test_the_sections_secrets_are_those_expected():
    assert len(SECRETS) == 3


@pytest.mark.parametrize(
    ("uri", "is_"),
    [
        ("/a", "folder"),
        ("file:///a", "folder"),
        ("s3a://b", "s3"),
        ("S3://b", "s3"),
    ],
)
def test_a_scheme_names_a_kind_of_store(uri, is_):
    assert kind(uri) == is_


@pytest.mark.parametrize("uri", ["hdfs://n/x", "abfss://c@a.dfs.core.windows.net/x", "gs://b/x"])
def test_another_scheme_is_refused(uri):
    with pytest.raises(ConfigError, match=r"is no store .*; valid: a folder, a mounted one too, file://…, s3://…"):
        kind(uri)
