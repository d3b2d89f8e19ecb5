"""Rows read from the source's server itself, landed beside the feed's: whole tables, and single keys."""
