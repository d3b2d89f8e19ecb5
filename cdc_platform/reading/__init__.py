"""Snapshots as frames: Arrow, pandas, polars, DuckDB without Spark, and Spark where a session is given."""

from cdc_platform.reading.catalog import Cut, TableName
from cdc_platform.reading.frames import Frames
from cdc_platform.reading.snapshots import Snapshots, SnapshotsAtCut

__all__ = ["Cut", "Frames", "Snapshots", "SnapshotsAtCut", "TableName"]
