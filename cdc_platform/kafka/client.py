"""One set of client properties for Spark's connector, librdkafka and the command line.

Users write Java client names, as in a `client.properties`; librdkafka shares most of them and the table below
translates the rest. Source: librdkafka CONFIGURATION.md; Apache Kafka "Configuration", 3.4 Consumer Configs.
"""

import re
import threading
from collections.abc import Callable, Container, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdc_platform.config import Config, Source
from cdc_platform.config.bridges import Bridge
from cdc_platform.errors import CdcError, ConfigError, KafkaAccessDenied, KafkaUnreachable

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient

_MANAGED = frozenset(
    (  # set by the platform: positions live in Delta checkpoints
        "group.id",
        "enable.auto.commit",
        "auto.offset.reset",
        "key.deserializer",
        "value.deserializer",
        "interceptor.classes",
        "partition.assignment.strategy",
    )
)
_JAVA_ONLY = frozenset(
    (
        "sasl.jaas.config",
        "ssl.truststore.type",
        "ssl.keystore.type",
        "ssl.protocol",
        "ssl.enabled.protocols",
        "ssl.trustmanager.algorithm",
        "ssl.keymanager.algorithm",
        "sasl.login.callback.handler.class",
        "sasl.client.callback.handler.class",
        "sasl.login.class",
        "default.api.timeout.ms",
        "max.poll.records",
        "fetch.max.wait.ms",
        "receive.buffer.bytes",
        "send.buffer.bytes",
        "client.dns.lookup",
    )
)
_RENAMED = {
    "ssl.truststore.location": "ssl.ca.location",  # PEM only
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "request.timeout.ms": "socket.timeout.ms",
}
_LOGIN_MODULES = frozenset(
    (  # CVE-2023-25194: any other module may load code named by the configuration
        "org.apache.kafka.common.security.plain.PlainLoginModule",
        "org.apache.kafka.common.security.scram.ScramLoginModule",
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
        "com.sun.security.auth.module.Krb5LoginModule",
    )
)
_JAAS_FIELD = re.compile(r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"')


def group_id(source: Source) -> str:
    """Consumer group under which landed offsets are committed, for lag tools only."""
    return f"cdc-platform-{source.name}"


def spark_options(config: Config, source: Source, topics: list[str] | None = None) -> dict[str, str]:
    """Options of Spark's Kafka source for this source's cluster and these topics (default: those it names). Raises
    ConfigError.

    Topics go by name also where the source has a pattern: Spark would take topics that match it only in part.
    """
    properties = _checked(config, source)
    names = source.topics if topics is None else topics
    return {**{f"kafka.{k}": v for k, v in properties.items()}, "subscribe": ",".join(names)}


def librdkafka_properties(config: Config, source: Source | Bridge) -> dict[str, str]:
    """The same properties as confluent-kafka takes them. Raises ConfigError."""
    out: dict[str, str] = {}
    for key, value in _checked(config, source).items():
        if key == "sasl.jaas.config":
            out |= _jaas_login(value)
        elif key not in _JAVA_ONLY:
            out[_RENAMED.get(key, key)] = value
    if "ssl.ca.location" in out and Path(out["ssl.ca.location"]).suffix.lower() in (".jks", ".p12", ".pfx"):
        raise ConfigError(
            "kafka.ssl.truststore.location",
            "must be a PEM file: offsets are also read by librdkafka, which reads no "
            "Java key store; `keytool -exportcert -rfc` makes one",
            ["ssl.truststore.type: PEM with a .pem file"],
        )
    return out


def reach(config: Config, source: Source | Bridge, timeout_s: float) -> "tuple[AdminClient, Any]":
    """An AdminClient, and brokers and topics as the cluster names them (all topics: asking for one may create it).

    Raises KafkaAccessDenied as soon as the cluster refuses us, KafkaUnreachable when the time is up. librdkafka itself
    goes on trying in both cases, and says why only to a callback.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    told: list[KafkaError] = []
    settings = {**librdkafka_properties(config, source), "log_level": "3", "error_cb": told.append}
    client, answer = AdminClient(settings, logger=_silent()), Future()

    def ask() -> None:
        try:
            answer.set_result(client.list_topics(timeout=timeout_s))
        except BaseException as error:  # noqa: BLE001 - whoever takes the answer gets it
            answer.set_exception(error)

    threading.Thread(target=ask, name="kafka-metadata", daemon=True).start()
    while not answer.done():
        client.poll(0.02)
        if any(map(_refusal, told)):
            raise failure(config, source, told)
    try:
        return client, answer.result()
    except KafkaException as error:
        client.poll(0)
        raise failure(config, source, told, error) from None


def failure(
    config: Config, source: Source | Bridge, told: "Sequence[KafkaError]", error: "KafkaException | None" = None
) -> CdcError:
    """What librdkafka's errors come to: those that a callback was told, and the one that ended a call."""
    servers = config.kafka_properties(source).get("bootstrap.servers", "")
    ended = [error.args[0]] if error and error.args and hasattr(error.args[0], "str") else []
    for one in [*told, *ended]:
        if problem := _refusal(one):
            return KafkaAccessDenied(source.name, servers, problem)
    why = next((_plain(one) for one in told if not one.str().endswith("brokers are down")), "")
    texts = [one.str() for one in ended] or ([str(error)] if error else [])
    return KafkaUnreachable(source.name, servers, "; ".join(filter(None, [*texts, why])))


_REFUSALS = {
    "_AUTHENTICATION": "authentication failed; check kafka.sasl.username, kafka.sasl.password and kafka.sasl.mechanism",
    "SASL_AUTHENTICATION_FAILED": "authentication failed; check kafka.sasl.username and kafka.sasl.password",
    "UNSUPPORTED_SASL_MECHANISM": "authentication failed; check kafka.sasl.mechanism",
    "ILLEGAL_SASL_STATE": "authentication failed; check kafka.security.protocol",
    "TOPIC_AUTHORIZATION_FAILED": "this user may not read the topic; it needs the rights Describe and Read",
    "GROUP_AUTHORIZATION_FAILED": "this user may not use the consumer group",
    "CLUSTER_AUTHORIZATION_FAILED": "this user may not describe the cluster",
}
"""Errors that no retry mends, and what to do. Names are librdkafka's (`KafkaError.name()`)."""


def _refusal(error: "KafkaError") -> str | None:
    """What a refusal says; None: the error is none."""
    if known := _REFUSALS.get(error.name()):
        return f"{known} ({_plain(error)})"
    if error.name() == "_SSL" and "certificate" in error.str():
        return f"the TLS certificate isn't accepted; check kafka.ssl.* ({_plain(error)})"
    return None


def _plain(error: "KafkaError") -> str:
    """librdkafka's text without the broker's address before it and the state after it."""
    text = re.sub(r"\s*\(after \d+ms in state \w+[^)]*\)$", "", error.str())
    return re.sub(r"^\S+/(?:bootstrap|\d+): ", "", text).strip()


def topic_filter(source: Source) -> Callable[[str], bool]:
    """Whether a topic belongs to the source, by name or pattern (a whole match, as Java's `matches`)."""
    if source.topics:
        return frozenset(source.topics).__contains__
    pattern = re.compile(str(source.topic_pattern))
    return lambda topic: pattern.fullmatch(topic) is not None


def missing_topics(source: Source, there: Container[str]) -> list[str]:
    """Topics that the configuration names and that aren't there. A pattern names none."""
    return [topic for topic in source.topics if topic not in there]


def _checked(config: Config, source: Source | Bridge) -> dict[str, str]:
    properties = config.kafka_properties(source)
    if not properties.get("bootstrap.servers"):
        raise ConfigError("kafka.bootstrap.servers", f"is missing for {source.name}", ["host:port[,host:port…]"])
    for key in properties:
        if key in _MANAGED:
            raise ConfigError(f"kafka.{key}", "is managed by the platform; leave it out")
    jaas = properties.get("sasl.jaas.config")
    if jaas is not None and (jaas.split(None, 1) or [""])[0] not in _LOGIN_MODULES:
        raise ConfigError("kafka.sasl.jaas.config", "names a login module that isn't allowed", sorted(_LOGIN_MODULES))
    return properties


def _jaas_login(jaas: str) -> dict[str, str]:
    found = dict(_JAAS_FIELD.findall(jaas))
    return {f"sasl.{k}": re.sub(r"\\(.)", r"\1", found[k]) for k in ("username", "password") if k in found}


def _silent():
    """librdkafka prints connection trouble to stderr; our own errors say it once and clearly."""
    import logging

    logger = logging.getLogger("cdc_platform.librdkafka")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    return logger
