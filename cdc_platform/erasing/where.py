"""Where a subject's bytes may lie: every table of the lake, and what becomes of it."""

from typing import Literal, NamedTuple

from cdc_platform import tables
from cdc_platform.tables import HISTORY_PATH, SNAPSHOT_PATH, TOMBSTONES_PATH, TYPED_CHANGES_PATH, Location

How = Literal["bytes", "events", "rows", "held", "parts", "texts", "nothing"]


class Lies(NamedTuple):
    """how: bytes: of messages, in place of which stands what is left of them; events, rows: are taken out; held: key
    and reason are; parts: states before the last go; texts: in which the subject's values are replaced; nothing: there
    are none. about: for people."""

    table: Location
    how: How
    about: str
    columns: tuple[str, ...] = ()


WHERE = (
    Lies(tables.LANDING, "bytes", "value, key and headers of each record; its address and times stay"),
    Lies(tables.ENVELOPES, "bytes", "the same of messages that were put together"),
    Lies(tables.WAITING, "parts", "parts of messages that are whole since; those that wait can't be read"),
    Lies(tables.CHANGES, "events", "row changes of the key, and errors that tell it; duplicates, too"),
    Lies(tables.CHANGELOG, "rows", "changes of the key"),
    Lies(SNAPSHOT_PATH, "rows", "the row, also where it is only marked as deleted; all old versions"),
    Lies(HISTORY_PATH, "rows", "versions of the row; all old versions"),
    Lies(TYPED_CHANGES_PATH, "rows", "changes of the row, from its key and to it; all old versions"),
    Lies(TOMBSTONES_PATH, "rows", "that the key was deleted; all old versions"),
    Lies(tables.QUARANTINE, "held", "the key and the reason of its rows, which count as resolved; all old versions"),
    Lies(tables.TABLE_STATE, "texts", "why a table is stopped may quote a value", ("reason",)),
    Lies(tables.BESIDE_STATE, "texts", "why a history or typed changes lack changes may quote one", ("reason",)),
    Lies(tables.SCHEMA_CHANGES, "texts", "why a statement wasn't applied may quote one", ("reason",)),
    Lies(tables.WATERMARKS, "texts", "what holds a time back may quote one", ("reason", "behind")),
    Lies(tables.RECONCILIATIONS, "texts", "problems may quote one", ("problems",)),
    Lies(tables.CERTIFICATES, "texts", "reasons and facts may quote one", ("reasons", "facts")),
    Lies(tables.SHADOW_COMPARISONS, "texts", "why a table isn't compared may quote one", ("reason",)),
    Lies(tables.SHADOW_DIFFERENCES, "rows", "of the key, of pairs with this source; all old versions"),
    Lies(tables.DDL_SEEN, "nothing", "statements name tables, columns and defaults, no row"),
    Lies(tables.SCHEMA_HISTORY, "nothing", "the same"),
    Lies(tables.SCHEMA_EFFECTS, "nothing", "the same, by digest"),
    Lies(tables.CONTEXTS, "nothing", "what statements told of columns"),
    Lies(tables.TYPES_KNOWN, "nothing", "names and digests of columns"),
    Lies(tables.CONTROL_EVENTS, "nothing", "begin, commit, heartbeat: positions and counts"),
    Lies(tables.OFFSET_LEDGER, "nothing", "counts; records that held nothing else move to `erased`"),
    Lies(tables.LOG_EPOCHS, "nothing", "positions"),
    Lies(tables.LINEAGES, "nothing", "positions"),
    Lies(tables.TABLE_RULES, "nothing", "configuration"),
    Lies(tables.DECODED_WITH, "nothing", "configuration"),
    Lies(tables.TOPICS, "nothing", "names"),
    Lies(tables.SNAPSHOT_FOLDERS, "nothing", "names"),
    Lies(tables.CUTS, "nothing", "versions and positions; versions from before can't be read any more"),
    Lies(tables.SEQUENCES, "nothing", "offsets"),
    Lies(tables.ERASURES, "nothing", "digests, addresses, counts"),
    Lies(tables.CARRIED, "nothing", "is empty between runs: one that was ended is finished first"),
    Lies(tables.CHECKPOINT, "nothing", "positions"),
)
"""All of them: tests/erasing/test_where.py fails for a table without a line here. `_replays/<source>` goes as a whole.
All files are looked through for the subject's values afterwards, also of tables in which there should be none."""


def texts() -> list[Lies]:
    """Tables of all sources with columns in which values may be quoted."""
    return [one for one in WHERE if one.how == "texts"]
