"""The embedded Kafka: one KRaft node on loopback, for local use, the demo and the tests."""

from cdc_platform.kafka.broker.node import DEFAULT_PORT, BrokerError, BrokerInfo, default_home, start, status, stop

__all__ = ["DEFAULT_PORT", "BrokerError", "BrokerInfo", "default_home", "start", "status", "stop"]
