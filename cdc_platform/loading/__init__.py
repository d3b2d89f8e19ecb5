"""Rows read from the source's server itself, landed beside the feed's: whole tables, and single keys."""

CHUNK_ROWS = 50_000
"""Rows that are read in one view of the server."""
