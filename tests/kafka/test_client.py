"""One set of Kafka properties for Spark's connector and librdkafka."""

import pytest
from confluent_kafka import Consumer

from cdc_platform.config import parse_config
from cdc_platform.errors import ConfigError
from cdc_platform.kafka import client

SECRET = "hunter2-canary"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def configured(properties, **source):
    config = parse_config(
        {
            "lake": "/lake",
            "sources": [
                {
                    "name": "shop",
                    "format": "debezium",
                    **({"topics": ["a", "b"]} if "topic_pattern" not in source else {}),
                    **source,
                }
            ],
        }
    )
    # as if secrets had come from the environment: written out parse_config refuses them
    filled = config.model_copy(update={"kafka": {"bootstrap.servers": "h:1", **properties}})
    return filled, filled.sources[0]


def test_spark_takes_the_properties_as_written_and_the_topics():
    options = client.spark_options(*configured({"security.protocol": "SSL", "fetch.max.wait.ms": "100"}))
    assert options == {
        "kafka.bootstrap.servers": "h:1",
        "kafka.security.protocol": "SSL",
        "kafka.fetch.max.wait.ms": "100",
        "subscribe": "a,b",
    }
    assert client.spark_options(*configured({}, topic_pattern="a.*"), ["a1", "a2"])["subscribe"] == "a1,a2"


TRANSLATED = {
    "names both know": (
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"},
        {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"},
    ),
    "PEM files": (
        {"ssl.truststore.location": "/ca.pem", "ssl.truststore.type": "PEM"},
        {"ssl.ca.location": "/ca.pem"},
    ),
    "PEM texts": (
        {"ssl.truststore.certificates": "CA", "ssl.keystore.certificate.chain": "C", "ssl.keystore.key": "K"},
        {"ssl.ca.pem": "CA", "ssl.certificate.pem": "C", "ssl.key.pem": "K"},
    ),
    "what only Java has is left out": ({"max.poll.records": "5", "client.dns.lookup": "use_all_dns_ips"}, {}),
    "login of a JAAS text": (
        {"sasl.jaas.config": f'{PLAIN} required username="u" password="p\\"w\\\\ =;x";'},
        {"sasl.username": "u", "sasl.password": 'p"w\\ =;x'},
    ),
}


@pytest.mark.parametrize("what", TRANSLATED)
def test_librdkafka_gets_its_own_names(what):
    written, expected = TRANSLATED[what]
    assert client.librdkafka_properties(*configured(written)) == {"bootstrap.servers": "h:1", **expected}


def test_librdkafka_accepts_what_a_java_client_properties_file_holds():
    written = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "ssl.endpoint.identification.algorithm": "https",
        "sasl.jaas.config": (
            'org.apache.kafka.common.security.scram.ScramLoginModule required username="u" password="p";'
        ),
        "request.timeout.ms": "20000",
        "session.timeout.ms": "30000",
        "default.api.timeout.ms": "60000",
        "fetch.max.bytes": "1000000",
        "max.partition.fetch.bytes": "1000000",
        "connections.max.idle.ms": "540000",
    }
    properties = client.librdkafka_properties(*configured(written))
    Consumer({**properties, "group.id": "g", "log_level": 0}).close()  # raises for a property it doesn't know


@pytest.mark.parametrize(
    "key", ["group.id", "enable.auto.commit", "auto.offset.reset", "key.deserializer", "interceptor.classes"]
)
@pytest.mark.parametrize("translate", [client.spark_options, client.librdkafka_properties])
def test_what_the_platform_manages_is_refused_by_name(translate, key):
    with pytest.raises(ConfigError) as caught:
        translate(*configured({key: SECRET}))
    assert caught.value.key == f"kafka.{key}"
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "module",
    [
        "com.sun.security.auth.module.JndiLoginModule",
        "com.sun.security.auth.module.LdapLoginModule",
        f"x{PLAIN}",
        " ",
        "{",
    ],
)
@pytest.mark.parametrize("translate", [client.spark_options, client.librdkafka_properties])
def test_only_known_login_modules_are_let_through(translate, module):
    with pytest.raises(ConfigError) as caught:
        translate(*configured({"sasl.jaas.config": f'{module} required password="{SECRET}";'}))
    assert caught.value.key == "kafka.sasl.jaas.config"
    assert PLAIN in caught.value.valid
    assert SECRET not in str(caught.value)


def test_a_blank_jaas_text_is_refused():
    with pytest.raises(ConfigError):
        client.spark_options(*configured({"sasl.jaas.config": "  "}))


@pytest.mark.parametrize("file", ["/c.jks", "/c.p12", "/C.PFX"])
def test_a_java_key_store_is_refused_with_the_way_out(file):
    with pytest.raises(ConfigError, match="PEM"):
        client.librdkafka_properties(*configured({"ssl.truststore.location": file}))


def test_absent_servers_are_named():
    config = parse_config({"lake": "/l", "sources": [{"name": "shop", "format": "debezium", "topics": ["a"]}]})
    with pytest.raises(ConfigError) as caught:
        client.spark_options(config, config.sources[0])
    assert caught.value.key == "kafka.bootstrap.servers"


def test_topics_belong_to_a_source_by_name_or_by_a_whole_match():
    named = client.topic_filter(configured({})[1])
    assert [t for t in ("a", "b", "ab", "A") if named(t)] == ["a", "b"]
    matched = client.topic_filter(configured({}, topic_pattern="dts-|shop")[1])
    assert [t for t in ("dts-", "shop", "dts-shop", "xshop", "shopx") if matched(t)] == ["dts-", "shop"]
