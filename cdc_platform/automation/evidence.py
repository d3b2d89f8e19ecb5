"""What a table's certificate was made from, as metadata: small, and the names the same for every table."""

from typing import Any

import dagster as dg

from cdc_platform.automation.table_status import TableStatus
from cdc_platform.units import count

_SHOWN = 3


def metadata(status: TableStatus) -> dict[str, Any]:
    """Of a table's materialization; None and nothing where there is none of it."""
    if status.certificate is None:
        return {}
    facts, compared = status.certificate.facts, status.certificate.compared
    found = {
        "source_landed": facts["landed"],
        "source_accounted": facts["accounted"],
        "missing_records": _some(facts["gaps"], "gap"),
        "decoder_versions": ", ".join(facts["decoder_versions"]),
        "schema_version": facts["schema_version"],
    }
    return found | (_compared(compared) if compared else {})


def _compared(of: dict[str, Any]) -> dict[str, Any]:
    """The newest comparison (a row of `comparisons`)."""
    return {
        "compared_at": dg.MetadataValue.timestamp(of["at"]),
        "compared_with": f"{of['table']}: {of['against']}",
        "compared_position": position(of["binlog_file"], of["binlog_pos"], of["gtid"]),
        "compared_rows": of["rows"],
        "compared_digest": of["digest"],
        "compared_differing": of["differing"],
    }


def position(file: str | None, at: Any, gtid: str | None) -> str | None:
    """Where a source was when it was read: `file:position`, else the GTID, else None."""
    return f"{file}:{at}" if file is not None and at is not None else gtid or None


def _some(texts: list[str], what: str) -> str | None:
    """The first of some clauses, and how many there are more; None: there are none."""
    more = [f"{count(len(texts) - _SHOWN, what)} more"] if len(texts) > _SHOWN else []
    return "; ".join([*texts[:_SHOWN], *more]) or None
