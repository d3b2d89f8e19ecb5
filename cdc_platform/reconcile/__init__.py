"""Proof that a snapshot equals its source: a live MySQL or MariaDB, or an export of it."""
