"""SQL of the reads at a source database: sums per bucket, digests of rows, rows. MySQL 5.7+, MariaDB 10+.

A row's digest is the MD5 of its columns' texts; its bucket the CRC32 of its key's texts. Names come in quoted,
values as checked literals.
"""

from collections.abc import Iterable, Sequence

from cdc_platform.mysql.ddl import quoted_name
from cdc_platform.reconcile.columns import Pair, Pairing
from cdc_platform.reconcile.texts import NO_TEXT_AT_SOURCE, NULL, key_literal

SESSION = (
    # No PAD_CHAR_TO_FULL_LENGTH, no ANSI_QUOTES, and all rows.
    "SET SESSION time_zone = '+00:00', sql_mode = '', sql_select_limit = 18446744073709551615",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
)
BEGIN = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"


def cell(pair: Pair) -> str:
    """SQL of one column's text in a digest."""
    column = quoted_name(pair.name)
    invalid = pair.text.invalid
    null = f"{column} IS NULL" + (f" OR {invalid.format(c=column)}" if invalid else "")
    return f"IF({null}, '{NULL}', COALESCE({pair.text.sql(column, pair.type)}, '{NO_TEXT_AT_SOURCE}'))"


def _joined(pairs: Iterable[Pair]) -> str:
    return f"CONCAT_WS(',', {', '.join(map(cell, pairs))})"


def _key_texts(pairing: Pairing) -> list[str]:
    """SQL of the texts to find rows by; none where there is no key."""
    if not pairing.keyed:
        return []
    return [p.text.key.sql(quoted_name(p.name), cell(p)) for p in pairing.keys]


def sums(table: str, pairing: Pairing, buckets: int) -> str:
    """bucket, rows, two 60-bit sums of row digests, dates that don't exist. `table`: quoted, with its database."""
    invalid = [
        f"COALESCE({p.text.invalid.format(c=quoted_name(p.name))}, 0)" for p in pairing.pairs if p.text.invalid
    ] or ["0"]
    half = "SUM(CAST(CONV({side}(h, 15), 16, 10) AS UNSIGNED))"
    return (
        f"SELECT CRC32(k) % {int(buckets)} AS b, COUNT(*), {half.format(side='LEFT')}, {half.format(side='RIGHT')}, "
        f"SUM(z) FROM (SELECT {_joined(pairing.keys)} AS k, MD5({_joined(pairing.pairs)}) AS h, "
        f"{' + '.join(invalid)} AS z FROM {table}) x GROUP BY b"
    )


def digests(table: str, pairing: Pairing, buckets: int, chosen: Sequence[int]) -> str:
    """Digest of key, digest of row and the key's texts, of the rows of these buckets."""
    columns = [f"MD5({_joined(pairing.keys)})", f"MD5({_joined(pairing.pairs)})", *_key_texts(pairing)]
    some = ", ".join(str(int(b)) for b in chosen)
    return f"SELECT {', '.join(columns)} FROM {table} WHERE CRC32({_joined(pairing.keys)}) % {int(buckets)} IN ({some})"


def digest_of_key(pairing: Pairing) -> str:
    """SQL of a row's key as `digests` gives it."""
    return f"MD5({_joined(pairing.keys)})"


def by_key(pairing: Pairing, key_texts: Sequence[str | None]) -> str | None:
    """Condition that finds a row by its key's values, which an index helps. None: they are no values of a key."""
    values = [(p, key_literal(p.text.key, t)) for p, t in zip(pairing.keys, key_texts, strict=True)]
    if any(literal is None for _, literal in values):
        return None
    return " AND ".join(f"{quoted_name(p.name)} = {literal}" for p, literal in values)


def by_digest(pairing: Pairing, digests_: Iterable[str]) -> str:
    """Condition that finds rows by the digests of their keys: a scan, but right for whatever a key holds."""
    some = ", ".join(f"'{bytes.fromhex(d).hex()}'" for d in digests_)
    return f"MD5({_joined(pairing.keys)}) IN ({some})"


def states(table: str, pairing: Pairing, conditions: Iterable[str]) -> str:
    """Digests of the rows that one of the conditions finds (under a collation also others of equal keys)."""
    return (
        f"SELECT MD5({_joined(pairing.keys)}), MD5({_joined(pairing.pairs)}) FROM {table} "
        f"WHERE {' OR '.join(f'({c})' for c in conditions)}"
    )


def rows(table: str, pairing: Pairing, conditions: Iterable[str]) -> str:
    """Digest of key; then per column its value for people and its text in the digest."""
    columns = [f"{p.text.shown_sql.format(c=quoted_name(p.name))}, {cell(p)}" for p in pairing.pairs]
    return (
        f"SELECT MD5({_joined(pairing.keys)}), {', '.join(columns)} FROM {table} "
        f"WHERE {' OR '.join(f'({c})' for c in conditions)}"
    )
