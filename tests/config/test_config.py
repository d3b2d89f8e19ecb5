"""Every wrong cdc.yaml is a ConfigError that names the key and says what would have worked."""

import json
from pathlib import Path

import pytest

from cdc_platform.cli.app import run
from cdc_platform.config import Config, Source, Tables, load_config, parse_config, redact
from cdc_platform.errors import ConfigError

SECRET = "hunter2-canary"


def raw(source=None, **top):
    """A mapping as YAML gives it, right but for what the test changes. A value of `...` removes the key."""
    first = {"name": "shop", "format": "tencent_dts", "topics": ["dts-shop"], **(source or {})}
    whole = {
        "lake": "./lake",
        "kafka": {"bootstrap.servers": "127.0.0.1:9092"},
        "sources": [{k: v for k, v in first.items() if v is not ...}],
        **top,
    }
    return {k: v for k, v in whole.items() if v is not ...}


def refused(mapping, file=Path("/etc/cdc/cdc.yaml")) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse_config(mapping, file)
    return caught.value


def test_defaults_are_those_of_the_design():
    config = parse_config(raw(), Path("/etc/cdc/cdc.yaml"))
    source = config.source("shop")
    assert (config.lake, config.spark.master, config.spark.remote) == ("/etc/cdc/lake", "local[*]", None)
    assert (source.start, source.on_lost_offsets, source.tables.include) == ("earliest", "fail", ["*"])
    assert config.state_dir == Path("/etc/cdc/.cdc")


UNKNOWN = {
    "at the top": (raw(sauces=[]), "sauces", set(Config.model_fields)),
    "of a source": (raw({"topic": "x"}), "sources[0].topic", set(Source.model_fields)),
    "of tables": (raw({"tables": {"only": ["a.*"]}}), "sources[0].tables.only", set(Tables.model_fields)),
    "of reconcile": (
        raw({"reconcile": {"dsn_env": "A", "dsn": "mysql://me:CANARY@h"}}),
        "sources[0].reconcile.dsn",
        {"dsn_env", "wait_s", "limit"},
    ),
    "of spark": (raw(spark={"mister": "local"}), "spark.mister", {"master", "remote", "conf"}),
    "of the upkeep": (
        raw(maintenance={"days": 3}),
        "maintenance.days",
        {"cron", "keep_hours", "tombstone_days"},
    ),
    "of the format's options": (
        raw({"options": {"timezone": "UTC"}}),
        "sources[0].options.timezone",
        {"time_zone", "lower_case_table_names", "schema_file", "untold_source"},
    ),
}


@pytest.mark.parametrize("where", UNKNOWN)
def test_an_unknown_key_is_named_with_the_valid_ones(where):
    mapping, key, valid = UNKNOWN[where]
    error = refused(mapping)
    assert (error.key, error.problem, set(error.valid)) == (key, "unknown key", valid)
    assert all(v in str(error) for v in valid)


WRONG = {
    "type of a number": (raw({"heartbeat_timeout_s": "soon"}), "sources[0].heartbeat_timeout_s", "integer"),
    "number too small": (
        raw({"max_records_per_batch": 0}),
        "sources[0].max_records_per_batch",
        "greater than 0",
    ),
    "no address of a Connect server": (raw(spark={"remote": "spark://h:7077"}), "spark.remote", "sc://host:15002"),
    "a token written out": (
        raw(spark={"remote": "sc://h:15002/;use_ssl=true;token=CANARY"}),
        "spark.remote",
        "SPARK_CONNECT_AUTHENTICATE_TOKEN",
    ),
    "a DSN written out": (
        raw({"reconcile": {"dsn_env": "mysql://me:CANARY@h"}}),
        "sources[0].reconcile.dsn_env",
        "name of an environment variable",
    ),
    "a route that is no regular expression": (
        raw({"tables": {"routes": {"shop_[0-9+.order": "shop.orders"}}}),
        "sources[0].tables.routes",
        "'shop_[0-9+.order' is no regular expression: unterminated character set at character 5",
    ),
    "a route to what is no table": (
        raw({"tables": {"routes": {"a.*": "orders"}}}),
        "sources[0].tables.routes",
        "'a.*': 'orders' is no db.table",
    ),
    "a route to a table that is routed itself": (
        raw({"tables": {"routes": {r"a\..*": "shop.orders", "shop.*": "all.shops"}}}),
        "sources[0].tables.routes",
        "the target 'shop.orders' is itself routed, to 'all.shops'",
    ),
    "size": (raw({"max_bytes_per_batch": "many"}), "sources[0].max_bytes_per_batch", "kmg"),
    "list given as text": (raw({"topics": "dts-shop"}), "sources[0].topics", "list"),
    "topics and pattern": (raw({"topic_pattern": "dts-.*"}), "sources[0]", "either topics or topic_pattern"),
    "neither topics nor pattern": (raw({"topics": ...}), "sources[0]", "either topics or topic_pattern"),
    "pattern that is no regular expression": (
        raw({"topics": ..., "topic_pattern": "dts-("}),
        "sources[0].topic_pattern",
        "regular expression",
    ),
    "one of two words": (
        raw({"on_lost_offsets": "ignore"}),
        "sources[0].on_lost_offsets",
        "'fail' or 'accept'",
    ),
    "start": (raw({"start": "now"}), "sources[0].start", "'earliest' or 'latest'"),
    "name": (raw({"name": "../shop"}), "sources[0].name", "letters, digits"),
    "name on two lines": (raw({"name": "shop\n"}), "sources[0].name", "letters, digits"),
    "name absent": (raw({"name": ...}), "sources[0].name", "required"),
    "lake absent": (raw(lake=...), "lake", "required"),
    "lake in a folder called a%20b": (raw(lake="/data/a%20b/lake"), "lake", "'%20'"),
    "no sources": (raw(sources=[]), "sources", "at least 1"),
    "two same names": (
        raw(sources=[*raw()["sources"], *raw()["sources"]]),
        "cdc.yaml",
        "two sources are called 'shop'",
    ),
    "names equal but for a dash": (
        raw(sources=[*raw({"name": "a-b"})["sources"], *raw({"name": "a_b"})["sources"]]),
        "cdc.yaml",
        "two sources",
    ),
    "kafka property without value": (raw(kafka={"sasl.password": None}), "kafka.sasl.password", "string"),
    "kafka property that is a list": (raw({"kafka": {"a": ["b"]}}), "sources[0].kafka.a", "string"),
    "spark property without value": (raw(spark={"conf": {"a": None}}), "spark.conf.a", "string"),
    "keys of a table": (
        raw({"tables": {"keys": {"shop.audit": "id"}}}),
        "sources[0].tables.keys.shop.audit",
        "list",
    ),
    "option of the format": (
        raw({"options": {"time_zone": "Mars/Base"}}),
        "sources[0].options.time_zone",
        "IANA",
    ),
    "option of another format": (
        raw({"format": "debezium", "options": {"decimal_handling_mode": "exact"}}),
        "sources[0].options.decimal_handling_mode",
        "'precise'",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_value_is_named_with_what_would_have_worked(what):
    mapping, key, told = WRONG[what]
    error = refused(mapping)
    assert error.key == key
    assert told in str(error)


def test_an_unknown_format_lists_the_registry():
    error = refused(raw({"format": "oracle_goldengate"}))
    assert error.key == "sources[0].format"
    assert {"tencent_dts", "debezium"} <= set(error.valid)


def test_an_unknown_source_lists_the_configured_ones():
    with pytest.raises(ConfigError) as caught:
        parse_config(raw()).source("shap")
    assert caught.value.valid == ("shop",)


def test_environment_variables_fill_values_at_any_depth(monkeypatch):
    monkeypatch.setenv("HOST", "kafka.example")
    monkeypatch.setenv("LIMIT", "7")
    config = parse_config(
        raw(
            {"topics": ["${HOST}.a"], "max_records_per_batch": "${LIMIT}"},
            kafka={"bootstrap.servers": "${HOST}:1,${HOST}:2"},
        )
    )
    source = config.source("shop")
    assert (source.topics, source.max_records_per_batch) == (["kafka.example.a"], 7)
    assert config.kafka["bootstrap.servers"] == "kafka.example:1,kafka.example:2"


def test_an_unset_environment_variable_names_key_and_variable(monkeypatch):
    monkeypatch.delenv("NO_SUCH_PASSWORD", raising=False)
    error = refused(raw({"kafka": {"sasl.password": "${NO_SUCH_PASSWORD}"}}))
    assert error.key == "sources[0].kafka.sasl.password"
    assert "NO_SUCH_PASSWORD" in str(error)


def test_a_filled_value_is_not_filled_again(monkeypatch):
    monkeypatch.setenv("OUTER", "${INNER}")
    monkeypatch.setenv("INNER", SECRET)
    assert parse_config(raw(kafka={"sasl.password": "${OUTER}"})).kafka["sasl.password"] == "${INNER}"


@pytest.mark.parametrize(
    "mapping",
    [
        raw({"heartbeat_timeout_s": "${CANARY}"}),
        raw({"name": "a", "start": "${CANARY}"}),
        raw({"format": "x", "kafka": {"sasl.password": "${CANARY}"}}),
        raw(kafka={"sasl.password": {"a": "${CANARY}"}}),
        raw({"max_bytes_per_batch": "${CANARY}"}),
        raw(sources="${CANARY}"),
    ],
)
def test_messages_never_hold_what_came_from_the_environment(monkeypatch, mapping):
    monkeypatch.setenv("CANARY", SECRET)
    error = refused(mapping)
    assert SECRET not in str(error) + repr(error) + repr(error.__cause__)


def test_numbers_and_booleans_become_java_property_text():
    config = parse_config(raw(kafka={"a": True, "b": False, "c": 30000}))
    assert config.kafka == {"a": "true", "b": "false", "c": "30000"}


def test_a_source_overrides_the_common_kafka_properties():
    config = parse_config(raw({"kafka": {"b": "own"}}, kafka={"a": "1", "b": "common"}))
    assert config.kafka_properties(config.source("shop")) == {"a": "1", "b": "own"}


@pytest.mark.parametrize(
    ("lake", "path"),
    [
        ("./.cdc/lake", "/etc/cdc/.cdc/lake"),
        ("../lake", "/etc/lake"),
        ("/data/lake/", "/data/lake"),
        ("file:/tmp/lake", "/tmp/lake"),
        ("file:///tmp/a%20lake", "/tmp/a lake"),
    ],
)
def test_a_lake_without_scheme_lies_relative_to_the_file(lake, path):
    assert parse_config(raw(lake=lake), Path("/etc/cdc/cdc.yaml")).lake == path


@pytest.mark.parametrize(
    ("lake", "uri"),
    [
        ("s3://b/lake", "s3://b/lake"),
        ("S3A://b/lake/", "s3a://b/lake"),
        ("s3a://b", "s3a://b"),
        ("s3://b/a b", "s3://b/a b"),
    ],
)
def test_a_lake_on_s3_is_a_place_in_a_bucket(lake, uri):
    assert parse_config(raw(lake=lake), Path("/etc/cdc/cdc.yaml")).lake == uri


@pytest.mark.parametrize(
    "lake", ["s3:b/lake", "s3:///lake", "s3://b//lake", "s3://b/../lake", "s3://b/l?x", "s3a://k:s@b/l"]
)
def test_what_is_no_place_in_a_bucket_is_refused(lake):
    error = refused(raw(lake=lake))
    assert error.key == "lake"
    assert "is no place in a bucket" in error.problem


@pytest.mark.parametrize("lake", ["s3n://b/lake", "oss://b/lake", "cosn://b/lake"])
def test_a_store_with_an_s3_compatible_address_is_named_by_that(lake):
    error = refused(raw(lake=lake))
    assert error.key == "lake"
    assert "storage.endpoint" in error.problem


@pytest.mark.parametrize("lake", ["hdfs://n/lake", "abfss://lake@account.dfs.core.windows.net/cdc", "gs://b/lake"])
def test_a_lake_on_another_store_is_refused(lake):
    error = refused(raw(lake=lake))
    assert (error.key, error.valid) == ("lake", ("a folder", "s3://bucket/folder"))
    assert "none of the platform's tests has run" in error.problem


def test_the_command_line_refuses_a_lake_on_another_store(tmp_path, capsys):
    file = tmp_path / "cdc.yaml"
    file.write_text("lake: gs://lake/cdc\nsources: [{name: shop, format: debezium, topics: [t]}]\n")
    assert run(["status", "--json", "--config", str(file)]) != 0
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["type"], error["key"]) == ("ConfigError", "lake")
    assert not (tmp_path / ".cdc" / "lake").exists()


def test_the_file_is_found_by_argument_then_environment(tmp_path, monkeypatch):
    text = "lake: ./lake\nsources: [{name: %s, format: debezium, topics: [t]}]\n"
    for name in ("one", "two"):
        (tmp_path / f"{name}.yaml").write_text(text % name)
    monkeypatch.setenv("CDC_CONFIG", str(tmp_path / "two.yaml"))
    assert load_config(tmp_path / "one.yaml").sources[0].name == "one"
    assert load_config().sources[0].name == "two"
    assert load_config().lake == str(tmp_path / "lake")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("lake: [1\n", "line 2"),
        ("- a\n", "must hold a mapping"),
        ("", "must hold a mapping"),
        ("lake: a\n", "sources"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused_with_the_place(tmp_path, text, told):
    file = tmp_path / "cdc.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=told):
        load_config(file)


def test_an_absent_file_is_named(tmp_path):
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "none.yaml")
    assert str(tmp_path / "none.yaml") in str(caught.value)


@pytest.mark.parametrize(
    ("include", "exclude", "wanted"),
    [
        (["*"], [], True),
        (["shop.*"], [], True),
        (["shop.*"], ["*.orders"], False),
        (["Shop.*"], [], False),
        (["shop.order?"], [], True),
    ],
)
def test_tables_are_chosen_by_pattern_and_exclude_is_stronger(include, exclude, wanted):
    assert Tables(include=include, exclude=exclude).wanted("shop", "orders") is wanted


@pytest.mark.parametrize(
    ("db", "table", "target"),
    [
        ("shop_1", "order_7", ("shop", "orders")),
        ("shop_1", "Order_7", ("shop_1", "Order_7")),
        ("xshop_1", "order_7", ("xshop_1", "order_7")),
        ("shop_1", "order_special", ("shop", "special.ones")),
        ("shop", "orders", ("shop", "orders")),
        ("shop_1", "with.dots", ("shop_1", "with.dots")),
    ],
)
def test_the_first_route_that_fits_the_whole_name_decides(db, table, target):
    tables = Tables(
        include=["shop_*.*"],
        routes={r".*\.order_special": "shop.special.ones", r"shop_[0-9]+\.order_.*": "shop.orders"},
    )
    assert tables.routed(db, table) == target
    assert tables.kept(*target) is (target[0] != "xshop_1")
    assert tables.kept(db, table) is (target == (db, table) != ("xshop_1", "order_7"))


@pytest.mark.parametrize(
    ("kept", "asked"), [("history", Tables.has_history), ("typed_changes", Tables.has_typed_changes)]
)
def test_what_is_kept_beside_a_snapshot_is_asked_for_by_pattern(kept, asked):
    rules = Tables(**{kept: ["shop.o*", "app.*.t"]}, routes={r"shop_[0-9]+\.o": "shop.others"})
    named = [("shop", "orders"), ("Shop", "orders"), ("shop", "others"), ("app", "a", "t"), ("app", "t")]
    assert [asked(rules, *name) for name in named] == [True, False, False, True, False]


def test_rules_of_tables_in_schemas():
    tables = Tables(
        include=["app.*"],
        exclude=["app.b.*"],
        keys={"app.a.t": ["id"]},
        routes={r"app\.t[0-9]+\.o": "app.all.o", r"app\.a\.old": "app.new"},
    )
    assert [tables.wanted("app", schema, "t") for schema in "ab"] == [True, False]
    assert tables.key_columns("app", "a", "t") == ["id"]
    assert tables.routed("app", "t1", "o") == ("app", "all", "o")
    assert tables.routed("app", "a", "old") == ("app", "new")
    assert tables.routed("app", "a", "t") == ("app", "a", "t")
    assert tables.kept("app", "all", "o")
    assert tables.kept("app", "a", "t")
    assert not tables.kept("app", "t1", "o")


@pytest.mark.parametrize(
    "key",
    [
        "sasl.password",
        "sasl.jaas.config",
        "ssl.keystore.key",
        "ssl.key.pem",
        "ssl.key.password",
        "ssl.keystore.password",
        "sasl.oauthbearer.client.secret",
        "fs.s3a.access.key",
        "fs.s3a.secret.key",
        "fs.s3a.session.token",
        "fs.azure.account.key.lake.dfs.core.windows.net",
        "sasl.oauthbearer.assertion.private.key.passphrase",
    ],
)
def test_redact_hides_every_kind_of_secret(key):
    assert redact({key: SECRET, "bootstrap.servers": "h:1"}) == {key: "***", "bootstrap.servers": "h:1"}


def test_without_a_cdc_yaml_the_finished_demos_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CDC_CONFIG", raising=False)
    text = "lake: ./lake\nsources: [{name: shop, format: debezium, topics: [t]}]\n"
    with pytest.raises(ConfigError, match=r"there is no file .*/cdc\.yaml"):
        load_config()
    demo = tmp_path / ".cdc/demo/cdc.yaml"
    demo.parent.mkdir(parents=True)
    demo.write_text(text)
    assert load_config().file == load_config("cdc.yaml").file == demo
    with pytest.raises(ConfigError, match=r"other\.yaml"):  # only the default is replaced
        load_config("other.yaml")
    (tmp_path / "cdc.yaml").write_text(text)
    assert load_config().file == tmp_path / "cdc.yaml"
