"""The fixtures of tests of Dagster's part."""

from tests.automation.conftest import _impatient, dagster_home, instance, stages  # noqa: F401
