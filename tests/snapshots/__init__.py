"""Tests of the snapshots room; a package because other folders have files of the same names."""
