"""Tests of the changelog stage; a package because other folders have files of the same names."""
