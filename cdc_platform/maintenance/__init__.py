"""Upkeep of the lake: nothing here changes what a table holds."""
