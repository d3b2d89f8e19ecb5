"""Snapshots as tables of a catalog (`catalog:` in cdc.yaml): registered when they are made, altered when their columns
change, removed when they are dropped.

A table of the catalog that isn't the snapshot's own, by its location, is never changed.
"""

from cdc_platform.snapshots.catalog.publish import publish

__all__ = ["publish"]
