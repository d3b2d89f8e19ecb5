"""Where the lake is: a folder that driver and executors see under the same path."""

import re
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from cdc_platform.errors import ConfigError

_SCHEME = re.compile(r"^([a-zA-Z][a-zA-Z0-9+.-]*):")
_UNSAFE = {
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
"""Scheme of a URI → why several drivers that share tables lose rows there."""
_OTHERS = "the platform commits by the operating system's own calls, and none of its tests has run on that store"
_VALID = ("a folder",)


def absolute(lake: str, folder: Path) -> str:
    """A lake as cdc.yaml names it → its path; relative paths start at the folder of cdc.yaml. Raises ConfigError."""
    if (scheme := _SCHEME.match(lake)) and scheme[1].lower() != "file":
        why = _UNSAFE.get(scheme[1].lower(), _OTHERS)
        raise ConfigError("lake", f"a lake on {scheme[1]}: isn't supported yet: {why}", _VALID)
    named = Path(url2pathname(urlsplit(lake).path)) if scheme else Path(lake).expanduser()
    path = str((folder / named).resolve())
    if escape := re.search("%[0-9a-fA-F]{2}", path):  # delta-rs takes it for the character that it stands for in a URI
        raise ConfigError(
            "lake", f"the path {path!r} holds {escape[0]!r}, which readers of Delta tables take for an escape"
        )
    return path
