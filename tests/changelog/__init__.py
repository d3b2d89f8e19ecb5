"""Tests of the changelog room; a package because other folders have files of the same names."""
