"""Bridges: feeds that are not in Kafka by themselves are carried there, byte for byte as the vendor's own producer
would have written them. The platform then reads the topic like any other."""
