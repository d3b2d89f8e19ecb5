"""What the DDL of a source tells its decoder, built once and kept: its parsers take a JVM of their own."""

import hashlib
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from cdc_platform.changes import in_force
from cdc_platform.config import Source
from cdc_platform.lake import delta_table
from cdc_platform.lake.store import Store

VERSION = 5
"""To be raised where statements are read otherwise than before: what is kept of them is built anew then."""


class Known(NamedTuple):
    """`text`: JSON of the context; `inputs`: digest of what it was built from; `digest`: of what decides how a message
    is decoded."""

    text: str
    inputs: str
    digest: str


def known(source: Source, ddl: list[dict[str, Any]], contexts: Store, build: Callable[[], Any]) -> Known:
    """The context that `build` gives of this DDL under the source's options; `contexts`: path of CONTEXTS."""
    options = in_force.values(source)
    inputs = _digest([VERSION, options, ddl])
    there = f"SELECT context FROM {{t}} WHERE inputs = '{inputs}' ORDER BY number DESC LIMIT 1"
    found = delta_table.ask(there, t=contexts)
    text = found[0]["context"] if found else json.dumps(build(), sort_keys=True)
    return Known(text, inputs, context_digest(text, options))


def context_digest(text: str, options: dict[str, Any]) -> str:
    """Digest of all that a decoder is told: its context, and its options (`in_force.values`)."""
    return _digest([text, options])


def _digest(of: Any) -> str:
    return hashlib.blake2b(json.dumps(of, sort_keys=True, default=str).encode(), digest_size=16).hexdigest()
