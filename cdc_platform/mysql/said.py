"""What the text of an ALTER says of columns, beside what the parsers make of it."""

import re

from cdc_platform.mysql.ddl import GAP, NAME, plain_name
from cdc_platform.mysql.tokens import NO_COLUMN


class Said:
    """What an ALTER says of columns that the columns before and after don't: which were renamed, which dropped (one of
    the same name may be added), in lower case. Names in quoted text and comments are none."""

    def __init__(self, sql: str):
        self.renames: list[tuple[str, str]] = []
        self.drops: set[str] = set()
        self.generates = False
        for found in _SAYS.finditer(sql):
            named = {k: plain_name(v).lower() for k, v in found.groupdict().items() if v is not None}
            if "old" in named:
                self.renames.append((named["old"], named["new"]))
            elif "was" in named:
                self.renames.append((named["was"], named["is"]))
            elif "drop" in named and (found["drop"].startswith("`") or named["drop"] not in NO_COLUMN):
                self.drops.add(named["drop"])
            elif "generated" in named:
                self.generates = True


_IF_EXISTS = rf"(?:IF{GAP}+EXISTS{GAP}+)?"
_SAYS = re.compile(
    r"'(?:[^'\\]|''|\\.)*+'|\"(?:[^\"\\]|\"\"|\\.)*+\"|/\*(?!!).*?\*/|(?:--\s|\#)[^\n]*"
    rf"|\bCHANGE{GAP}+(?:COLUMN{GAP}+)?{_IF_EXISTS}(?P<old>{NAME}){GAP}+(?P<new>{NAME})"
    rf"|\bRENAME{GAP}+COLUMN{GAP}+{_IF_EXISTS}(?P<was>{NAME}){GAP}+TO{GAP}+(?P<is>{NAME})"
    rf"|\bDROP{GAP}+(?:COLUMN{GAP}+)?{_IF_EXISTS}(?P<drop>{NAME})"
    r"|(?P<generated>\bAS\s*\()"
    rf"|{NAME}",
    re.IGNORECASE | re.DOTALL,
)
