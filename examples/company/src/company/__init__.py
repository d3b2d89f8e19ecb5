"""A company's own Dagster project."""
