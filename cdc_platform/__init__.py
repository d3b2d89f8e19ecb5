"""Turns vendors' CDC topics into Delta tables that provably equal the source."""

__version__ = "0.1.0"
