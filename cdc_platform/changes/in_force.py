"""Which options a source's messages are decoded with: noted in the lake whenever they change.

Decoded rows keep the meaning that the options gave them: a changed time zone or column type holds for later messages
only. So that nobody finds out from the data, `decoded_with` says which options hold from which offsets on.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from cdc_platform.config import Config, Source
from cdc_platform.formats import FORMATS
from cdc_platform.lake import stores
from cdc_platform.tables import DECODED_WITH, OFFSET_LEDGER

_FILES = ("schema_file",)
"""Options that name a file: its content is what counts."""
OF_TYPES = ("columns", "schema_file")
"""Options that name types: rows whose types weren't known get them (changelog/retyped.py)."""


def values(source: Source) -> dict[str, Any]:
    """Option → value in JSON's types, of all options of the format, also those left at their default; `format` itself;
    of a file its digest. None of them is a secret."""
    options = FORMATS[source.format].options.model_validate(source.options).model_dump(mode="json")
    files = {name: _content(options[name]) for name in _FILES if options.get(name)}
    return {"format": source.format, **options, **files}


def digest(of: dict[str, Any]) -> str:
    """Hexadecimal digest of such values."""
    return hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()


def note(config: Config, source: Source) -> None:
    """Keeps the options that are about to be used, with the first offsets they apply to. Nothing is written where they
    are those that were noted last."""
    from cdc_platform.lake import delta_table
    from cdc_platform.spark import delta_sql

    path = delta_sql.ensure(DECODED_WITH, DECODED_WITH.at(stores.lake(config)))
    own = f"source = '{source.name}'"
    newest = delta_table.ask(f"SELECT number, digest FROM {{t}} WHERE {own} ORDER BY number DESC LIMIT 1", t=path)
    now = values(source)
    if newest and newest[0]["digest"] == digest(now):
        return
    number = newest[0]["number"] + 1 if newest else 0
    row = {
        "source": source.name,
        "number": number,
        "format": source.format,
        "decoder_version": FORMATS[source.format].version,
        "options": json.dumps(now, sort_keys=True),
        "digest": digest(now),
        "offsets": decoded(config, source),
    }
    delta_table.append_rows(path, [row], of=f"{own} AND number = {number}")


def decoded(config: Config, source: Source) -> dict[str, int]:
    """topic/partition → first offset that isn't decoded yet."""
    from cdc_platform.lake import delta_table

    path = OFFSET_LEDGER.at(stores.lake(config))
    if not delta_table.exists(path):
        return {}
    done = delta_table.ask(
        'SELECT topic, "partition", max(to_offset) AS last FROM {t} '
        f"WHERE source = '{source.name}' AND outcome NOT IN ('landed', 'lost', 'waiting', 'joined') "
        'GROUP BY topic, "partition"',
        t=path,
    )
    return {f"{r['topic']}/{r['partition']}": r["last"] + 1 for r in done}


def _content(file: str) -> str:
    """Digest of a file's bytes; of one that can't be read its name: decoding tells why."""
    try:
        return "sha256:" + hashlib.sha256(Path(file).read_bytes()).hexdigest()
    except OSError:
        return f"unreadable: {file}"
