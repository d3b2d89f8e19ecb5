"""Where the lake is: a folder or a URI, and which stores can't hold one."""

import re
from pathlib import Path

from cdc_platform.errors import ConfigError

_SCHEME = re.compile(r"^([a-zA-Z][a-zA-Z0-9+.-]*):")
_LOSES_COMMITS = {
    **dict.fromkeys(
        ("s3", "s3a", "s3n"),
        "Delta's default log store on S3 looks whether a commit is there and then writes its own: of two drivers "
        "that commit at once the second overwrites the first, and committed rows would be lost without an error",
    ),
    **dict.fromkeys(
        ("oss", "cos", "cosn", "obs", "tos", "ks3", "swift"),
        "Delta commits there by a rename that isn't atomic on this store: of two drivers that commit at once the "
        "second may overwrite the first, and committed rows would be lost without an error",
    ),
}
"""Scheme of a URI → why a lake there isn't safe: runs of several sources are drivers of their own and share tables."""
_SAFE_LAKES = ("a folder", "hdfs://…", "abfss://…", "gs://…")


def absolute(lake: str, folder: Path) -> str:
    """A lake as cdc.yaml names it → its URI, or its path relative to the folder of cdc.yaml. Raises ConfigError."""
    if scheme := _SCHEME.match(lake):
        if why := _LOSES_COMMITS.get(scheme[1].lower()):
            problem = f"a lake on {scheme[1]}: isn't supported until commits are conditional there: {why}"
            raise ConfigError("lake", problem, _SAFE_LAKES)
        return lake.rstrip("/")
    path = str((folder / Path(lake).expanduser()).resolve())
    if escape := re.search("%[0-9a-fA-F]{2}", path):  # delta-rs takes it for the character that it stands for in a URI
        raise ConfigError(
            "lake", f"the path {path!r} holds {escape[0]!r}, which readers of Delta tables take for an escape"
        )
    return path
