"""Kafka Connect and Debezium encodings, by semantic type: what several JSON writers share."""
