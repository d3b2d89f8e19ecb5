"""Values of cdc.yaml that Dagster takes over: owners and tags, by Dagster's own rules.

Dagster refuses others when the definitions load; here the error names the key of cdc.yaml, and commands that need no
Dagster don't import it. `tests/config/test_dagster.py` holds these rules against Dagster's.
"""

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

from cdc_platform.config.model import as_text

_EMAIL = re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,7}")
_TAG_KEY = re.compile(r"([A-Za-z0-9_.-]{1,63}/)?[A-Za-z0-9_.-]{1,63}")
_TAG_VALUE = re.compile(r"[A-Za-z0-9_.-]{0,63}")
_RESERVED = "dagster/"


def _owner(value: str) -> str:
    if not (_EMAIL.fullmatch(value) or (value.startswith("team:") and len(value) > len("team:"))):
        raise ValueError(f"{value!r} is no owner; valid: an e-mail address, or team:NAME")
    return value


def _tags(value: dict[str, str]) -> dict[str, str]:
    for key, text in value.items():
        if not _TAG_KEY.fullmatch(key):
            raise ValueError(
                f"{key!r} is no tag key; valid: letters, digits, _ . - (at most 63), and once a / before them"
            )
        if key.startswith(_RESERVED):
            raise ValueError(f"{key!r}: tags that begin with {_RESERVED} are Dagster's own")
        if not _TAG_VALUE.fullmatch(text):
            raise ValueError(f"{key!r}: {text!r} is no tag value; valid: letters, digits, _ . - (at most 63)")
    return value


Owner = Annotated[str, AfterValidator(_owner)]
"""An e-mail address, or `team:NAME`."""

Tags = Annotated[dict[str, str], BeforeValidator(as_text), AfterValidator(_tags)]
"""Dagster tags: short labels by which assets are searched and grouped."""
