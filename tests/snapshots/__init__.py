"""Tests of the snapshots stage; a package because other folders have files of the same names."""
