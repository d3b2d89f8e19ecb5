"""How a subject's texts may stand in others: as they are, escaped, in parts, and cut off behind their beginning."""

# pyarrow.compute makes its functions at run time, so that type checkers do not see them.
# pyright: reportAttributeAccessIssue=false

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

GONE = "(erased)"
"""Stands in texts in place of a value."""
_LETTERS, _IDEOGRAPHS, _SIGNS, _DIGITS = 6, 2, 8, 11
"""Characters that a text has at least that is looked for: with a letter; with one of Chinese, Japanese or Korean; of
digits and signs; of a number. Shorter ones stand anywhere: positions in a log have up to ten digits."""
_LONGEST = 64
"""Of longer texts the beginning, the middle and the end are looked for."""
_SHOWN = 76
"""Characters of a value that a reason shows at least before it cuts it off."""
_AROUND = 1 << 13
"""Characters before and behind a part that go with it."""
_CUT = r"\.\.\.|…"
_AT_ONCE, _HEAD = 100, 32
_WORDS = re.compile("CJK|HIRAGANA|KATAKANA|HANGUL")
_A_TIME = re.compile(r"\d{4}-\d\d-\d\d([ T].*)?|-?\d+:\d\d(:\d\d)?(\.\d+)?|(19|20)\d{12}")
_A_NUMBER = re.compile(r"[+-]?\d*\.?\d*")
_YEARS = 1_420_070_400, 2_051_222_400
"""From 2015 to 2034, in seconds since 1970: messages tell times as numbers."""


class Part(NamedTuple):
    """Of a text of the subject's, by which it is found. before, after: what it stands between there; bounded: where
    it is part of a longer number it is another's."""

    text: str
    before: str = ""
    after: str = ""
    bounded: bool = False


def worth(text: str) -> bool:
    """Whether a text can be told from others where it stands as a part."""
    if any(c.isalpha() for c in text):
        return len(text) >= _LETTERS or sum(map(_is_ideograph, text)) >= _IDEOGRAPHS
    return _is_told_by_digits(text)


def _is_ideograph(char: str) -> bool:
    return ord(char) > 0x1100 and char.isalpha() and bool(_WORDS.match(unicodedata.name(char, "")))


def _is_told_by_digits(text: str) -> bool:
    digits = sum(map(str.isdecimal, text))
    if len(text) < _SIGNS or digits < _SIGNS // 2 or _A_TIME.fullmatch(text):
        return False
    if not _A_NUMBER.fullmatch(text):
        return True
    whole = text.lstrip("+-").partition(".")[0]
    since = (int(whole) // unit for unit in (1, 1000, 1_000_000, 1_000_000_000)) if whole else ()
    return digits >= _DIGITS and not any(_YEARS[0] <= s < _YEARS[1] for s in since)


def parts(text: str) -> list[Part]:
    """By which a text is looked for; none: it can't be."""
    if not worth(text):
        return []
    size, bounded = len(text), not any(c.isalpha() for c in text)
    ends = [(0, size)]
    if size > _LONGEST:
        middle = (size - _LONGEST) // 2
        ends = [(0, _LONGEST), (middle, middle + _LONGEST), (size - _LONGEST, size)]
        bounded = False
    if (shown := _shown(text)) < min(size, _LONGEST) and worth(text[:shown]):
        ends.append((0, shown))
    found = (
        Part(text[a:b], text[max(0, a - _AROUND) : a], text[b : b + _AROUND], bounded and b - a == size)
        for a, b in dict.fromkeys(ends)
    )
    return [part for part in found if worth(part.text)]


def _shown(text: str) -> int:
    """How many characters of it a reason shows that cuts it off (formats/texts.py: shown)."""
    left = _SHOWN
    for i, char in enumerate(text[:_SHOWN]):
        left -= len(_escaped(char))
        if left < 0:
            return i
    return min(len(text), _SHOWN)


# -- as they stand in texts --------------------------------------------------------------------------------


def _escaped(text: str) -> str:
    """As ascii() has it."""
    return text.encode("unicode_escape").decode()


def _printable(text: str) -> str:
    """As repr() has it."""
    return "".join(c if c.isprintable() and c != "\\" else _escaped(c) for c in text)


def _in_quotes(text: str) -> str:
    """As ascii() and repr() have it of texts with quotes of both kinds."""
    return _escaped(text).replace("'", "\\'")


def _of_bytes(text: str) -> str:
    """As ascii() has it of its bytes."""
    return _escaped(text.encode().decode("latin-1"))


def _json(text: str) -> str:
    return json.dumps(text)[1:-1]


def _wide_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


_PLAIN = (str, _escaped, _in_quotes, _printable, _of_bytes)
_DEEP = 3
"""Facts of a certificate are JSON, lowest and highest of a column are JSON, and a log is."""


@lru_cache(1024)
def forms(part: Part) -> tuple[Part, ...]:
    """A part as it is, as Python shows it, and both in JSON, which may be a text of JSON."""
    return tuple(Part(a, b, c, part.bounded) for a, b, c in _spelled(part.text, part.before, part.after))


def _spelled(*texts: str) -> dict[tuple[str, ...], None]:
    """Some texts, each time all of them in one form."""
    found = {tuple(map(plain, texts)): None for plain in _PLAIN}
    for _ in range(_DEEP):
        found |= {tuple(map(form, told)): None for told in found for form in (_json, _wide_json)}
    return found


@dataclass(frozen=True)
class Quotes:
    """Parts of texts, to be found in other texts in any form."""

    parts: tuple[Part, ...]

    @cached_property
    def forms(self) -> list[Part]:
        """Of all of them, the longest first."""
        return sorted({f for part in self.parts for f in forms(part)}, key=lambda f: (-len(f.text), f))

    @cached_property
    def finder(self) -> "Finder":
        """Finds them in columns."""
        return Finder(self.forms)

    @cached_property
    def in_bytes(self) -> list[re.Pattern[bytes]]:
        """The same for the bytes of logs and footers, where numbers are others' that don't stand in a text."""
        every = sorted({_in_bytes(f) for f in self.forms})
        return [re.compile(b"|".join(every[i : i + _AT_ONCE])) for i in range(0, len(every), _AT_ONCE)]

    @cached_property
    def _cut(self) -> list[tuple[str, int]]:
        """Beginnings of texts that may be cut off, and how much of each is there at least."""
        found = {}
        for part in (p for p in self.parts if not p.before and not p.bounded):
            least = next(n for n in range(1, len(part.text) + 1) if worth(part.text[:n]))
            for text, after, first in _spelled(part.text, part.after[:_LONGEST], part.text[:least]):
                found[text + after] = len(first)
        return sorted(found.items())

    @cached_property
    def _cut_patterns(self) -> list[str]:
        """Regular expressions that match where one may be cut off, if nowhere else."""
        some = _together(_quoted(whole[:least]) for whole, least in self._cut)
        return [f"(?s:(?:{s}).*(?:{_CUT}))" for s in some]

    def may_stand(self, column: pa.Array) -> np.ndarray:
        """Numbers of the rows of a column of texts in which one may stand, also cut off."""
        return np.union1d(self.finder.at(column), _matching(column, self._cut_patterns))

    def replaced(self, told: str) -> str:
        """A text of bookkeeping without them: each goes as far as it stands there."""
        found = sorted([*self._spans(told), *self._cut_spans(told)])
        made, at = [], 0
        for begin, end in found:
            if end <= at:
                continue
            if begin > at or not made:
                made += [told[at:begin], GONE]
            at = end
        return "".join([*made, told[at:]])

    def _spans(self, told: str) -> Iterator[tuple[int, int]]:
        for form in self.forms:
            for begin in _places(form, told):
                end = begin + len(form.text)
                before = _alike(reversed(told[:begin]), reversed(form.before))
                yield begin - before, end + _alike(told[end:], form.after)

    def _cut_spans(self, told: str) -> Iterator[tuple[int, int]]:
        for end in (m.start() for m in re.finditer(_CUT, told)):
            for whole, least in self._cut:
                for n in range(min(end, len(whole)), least - 1, -1):
                    if told.startswith(whole[:n], end - n):
                        yield end - n, end
                        break


def stands(part: Part, told: str) -> bool:
    """Whether a part stands in a text, as it is."""
    return next(_places(part, told), None) is not None


def _places(form: Part, told: str) -> Iterator[int]:
    at = told.find(form.text)
    while at >= 0:
        if not form.bounded or _is_bounded(told[max(0, at - 1) : at], told[at + len(form.text) :][:2]):
            yield at
        at = told.find(form.text, at + 1)


def _is_bounded(before: str, after: str) -> bool:
    return not re.match(r"[0-9.]", before) and not re.match(r"\.?[0-9]", after)


def _alike(one: Iterable[str], other: Iterable[str]) -> int:
    """How many characters from the first on are the same."""
    found = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        found += 1
    return found


@dataclass(frozen=True)
class Finder:
    """Finds texts in columns of texts or bytes, as they are."""

    forms: Sequence[Part]

    def at(self, column: pa.Array) -> np.ndarray:
        """Numbers of the rows in which one stands."""
        near = _matching(column, self._heads)
        return near[_matching(column.take(pa.array(near)), self._patterns)] if len(near) else near

    @cached_property
    def _patterns(self) -> list[str]:
        return _together(_pattern(form) for form in self.forms)

    @cached_property
    def _heads(self) -> list[str]:
        """Of beginnings: long alternatives, of other than ASCII, take RE2 twenty times as long."""
        return _together(_pattern(f) if f.bounded else _quoted(f.text[:_HEAD]) for f in self.forms)


def _together(told: Iterable[str]) -> list[str]:
    every = sorted(set(told))
    return ["|".join(every[i : i + _AT_ONCE]) for i in range(0, len(every), _AT_ONCE)]


def _matching(column: pa.Array, wanted: Iterable[str]) -> np.ndarray:
    found = np.zeros(len(column), bool)
    for pattern in wanted:
        found |= pc.fill_null(pc.match_substring_regex(column, pattern), False).to_numpy(zero_copy_only=False)
    return np.nonzero(found)[0]


def _pattern(form: Part) -> str:
    told = _quoted(form.text)
    return rf"(?:^|[^0-9.]){told}(?:$|[^0-9.]|\.(?:$|[^0-9]))" if form.bounded else told


def _in_bytes(form: Part) -> bytes:
    told = re.escape(form.text.encode())
    return rb"(?<![0-9.:,\[])(?<![:,\[] )" + told + rb"(?!\.?[0-9])" if form.bounded else told


def _quoted(text: str) -> str:
    return "".join(c if c.isalnum() or c == "_" or not c.isascii() else f"\\x{{{ord(c):02x}}}" for c in text)
