"""Where the lake is: a folder that driver and executors see under the same path, or a place in a bucket of S3."""

import re
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from cdc_platform.errors import ConfigError

_SCHEME = re.compile(r"^([a-zA-Z][a-zA-Z0-9+.-]*):")
_S3 = ("s3", "s3a")
_PLACE = re.compile(r"//[^/@:?#%\\\s]+(/[^/?#%\\\x00-\x1f]+)*/?")
_BY_S3 = (
    "none of the platform's tests has run on it; where it has an S3-compatible address, use that: s3://bucket/folder "
)
_OTHERS = "none of the platform's tests has run on that store"
_WHY: dict[str, str] = dict.fromkeys(
    ("s3n", "oss", "cos", "cosn", "obs", "tos", "ks3", "swift"), f"{_BY_S3}and storage.endpoint in cdc.yaml"
)
"""Scheme of a URI → why it is refused."""
_VALID = ("a folder", "s3://bucket/folder")


def absolute(lake: str, folder: Path) -> str:
    """A lake as cdc.yaml names it → its path or URI; relative paths start at the folder of cdc.yaml. Raises
    ConfigError."""
    scheme = _SCHEME.match(lake)
    name = scheme[1].lower() if scheme else "file"
    if name in _S3:
        return _in_a_bucket(name, lake)
    if name != "file":
        why = _WHY.get(name, _OTHERS)
        raise ConfigError("lake", f"a lake on {name}: isn't supported: {why}", _VALID)
    named = Path(url2pathname(urlsplit(lake).path)) if scheme else Path(lake).expanduser()
    path = str((folder / named).resolve())
    if escape := re.search("%[0-9a-fA-F]{2}", path):  # delta-rs takes it for the character that it stands for in a URI
        raise ConfigError(
            "lake", f"the path {path!r} holds {escape[0]!r}, which readers of Delta tables take for an escape"
        )
    return path


def _in_a_bucket(scheme: str, lake: str) -> str:
    place = lake.partition(":")[2]
    if not _PLACE.fullmatch(place) or re.search(r"/\.{1,2}(/|$)", place):
        raise ConfigError("lake", f"{lake!r} is no place in a bucket", ["s3://bucket/folder, without ? # % and .."])
    return f"{scheme}:{place.rstrip('/')}"
