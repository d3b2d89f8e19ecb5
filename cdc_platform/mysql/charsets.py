"""MySQL character sets: bytes of a column → text. Known once, for all formats.

Names: MySQL 8.0 reference manual, "Supported Character Sets". Decoding is strict: bytes that are no text of
their charset are told, never replaced.
"""

import codecs
import re
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache, partial

import numpy as np
import pyarrow as pa

# MySQL's latin1 is Windows-1252 with the five bytes that cp1252 leaves undefined read as C1 controls
# (MySQL manual, "West European Character Sets").
_LATIN1 = "".join(bytes([b]).decode("latin-1" if b in (0x81, 0x8D, 0x8F, 0x90, 0x9D) else "cp1252") for b in range(256))

UTF8 = frozenset(("utf8", "utf8mb3", "utf8mb4", "utf-8"))
"""Charsets whose bytes are UTF-8."""

_WIDE = {"ucs2": "utf_16_be", "utf16": "utf_16_be", "utf16le": "utf_16_le", "utf32": "utf_32_be"}

_ASCII_BASED = {  # 7-bit bytes mean ASCII
    "ascii": "ascii", "gbk": "gbk", "gb2312": "gb2312", "gb18030": "gb18030",
    "cp932": "cp932", "sjis": "shift_jis", "ujis": "euc_jp",
    "euckr": "cp949",  # MySQL's euckr has the extended syllables of cp949
    "cp1250": "cp1250", "cp1251": "cp1251", "cp1256": "cp1256", "cp1257": "cp1257", "koi8r": "koi8_r",
    "koi8u": "koi8_u", "latin2": "iso8859_2", "latin5": "iso8859_9", "latin7": "iso8859_13",
    "greek": "iso8859_7", "hebrew": "iso8859_8", "cp850": "cp850", "cp852": "cp852", "cp866": "cp866",
    "tis620": "tis_620", "macroman": "mac_roman", "macce": "mac_latin2", "hp8": "hp_roman8",
}  # fmt: skip

_OTHERWISE = {
    "cp866": {"№": "ⁿ", "¤": "²"},
    "greek": {"\u2018": "\u02bd", "\u2019": "\u02bc"},
    "hebrew": {"¯": "\u203e"},
    "koi8u": {"\u2219": "\u2022"},
    "sjis": {"＼": "\\"},
    "ujis": {"＼": "\\"},
}
"""Characters of Python's codecs that MySQL's tables have as others. Every charset above but gb18030 was compared with
MariaDB 10.11 for every one and two bytes."""


def _latin1(data: bytes) -> str:
    return data.decode("latin-1").translate(_LATIN1_TABLE)


_LATIN1_TABLE = {b: _LATIN1[b] for b in range(0x80, 0xA0)}


def _codec(name: str) -> Callable[[bytes], str]:
    return partial(str, encoding=name, errors="strict")


def _codec_but(name: str, others: dict[str, str]) -> Callable[[bytes], str]:
    table = str.maketrans(others)
    return lambda data: str(data, name, "strict").translate(table)


_BIG5_ETEN = re.compile(rb"\xf9[\xd6-\xdc]")


def _big5_rest(error: UnicodeError) -> tuple[str, int]:
    """The seven characters of ETEN that MySQL's big5 has (碁 銹 裏 墻 恒 粧 嫺) and Python's hasn't."""
    if isinstance(error, UnicodeDecodeError) and (found := _BIG5_ETEN.match(error.object, error.start)):
        return found[0].decode("cp950"), found.end()
    raise error


codecs.register_error("mysql_big5", _big5_rest)


_DECODERS: dict[str, Callable[[bytes], str]] = {
    "latin1": _latin1,
    **{charset: _codec(codec) for charset, codec in (_WIDE | _ASCII_BASED).items()},
    **{charset: _codec_but(_ASCII_BASED[charset], others) for charset, others in _OTHERWISE.items()},
    "big5": partial(str, encoding="big5", errors="mysql_big5"),
    **{charset: _codec("utf-8") for charset in UTF8},
}


def charset_name(text: str) -> str | None:
    """Charset or collation name as the wire spells it → known charset name, `binary`, or None when unknown.

    A collation's name begins with its charset's (`gbk_chinese_ci`, `utf8mb4_bin`)."""
    name = text.strip().lower()
    head = name.partition("_")[0]
    return next((n for n in (name, head) if n in _DECODERS or n == "binary"), None)


def decode_text(values: pa.BinaryArray, charset: str) -> tuple[pa.StringArray, np.ndarray]:
    """Bytes in `charset` (a name that `charset_name` gave, not `binary`) → (text, ok). Where `ok` is False
    the text is null. Nulls stay null and are ok."""
    if charset in UTF8 or (charset not in _WIDE and _all_ascii(values)):
        try:
            return values.cast(pa.string()), np.ones(len(values), bool)
        except pa.ArrowInvalid:
            pass  # one value at least is no UTF-8: find it below
    decoder = _DECODERS[charset]
    codes = values.dictionary_encode()  # odd charsets decode in Python: each distinct value once
    words: list[str | None] = []
    for data in codes.dictionary.to_pylist():
        try:
            words.append(decoder(data))
        except UnicodeDecodeError:
            words.append(None)
    text = pa.array(words, pa.string()).take(codes.indices)
    ok = text.is_valid().to_numpy(zero_copy_only=False) | values.is_null().to_numpy(zero_copy_only=False)
    return text, ok


def _all_ascii(values: pa.BinaryArray) -> bool:
    data = values.buffers()[2]
    if data is None or not len(values):
        return True
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    return not (np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]] & 0x80).any()


_ALL = frozenset(("utf8mb4", "utf16", "utf16le", "utf32", "gb18030"))
"""Charsets that have every character."""
_PLANE = frozenset(("utf8", "utf8mb3", "utf-8", "ucs2"))
"""Those that have the characters of Unicode's first plane. (What MySQL calls utf8 is utf8mb3.)"""


def may_lack(charset: str | None, before: str | None) -> bool:
    """Whether a charset may lack characters that texts of the one before have. None: it isn't told."""
    if charset is None or charset == before or charset in _ALL:
        return False
    return not (charset in _PLANE and before is not None and before not in _ALL)


def with_question_marks(text: str, charset: str) -> str | None:
    """What a server makes of a text that gets this charset: it writes `?` for each character that this lacks. None: the
    charset isn't known, and the text isn't ASCII."""
    if text.isascii() or charset in _ALL:
        return text
    if charset in _PLANE:
        return "".join(c if c <= "\uffff" else "?" for c in text)
    if charset not in _DECODERS:
        return None
    return "".join(c if c.isascii() or _has(charset, c) else "?" for c in text)


_LACKING = {
    "big5": "ˍ╴￣",
    "cp1256": "ٹڈڑکںھہے",
    "cp932": "\x80¢£¬‖−〜\uf8f0\uf8f1\uf8f2\uf8f3",
    "greek": "€₯ͺ",
    "sjis": "¥‾",
    "ujis": "¥‾",
}
"""Characters of Python's codecs that MySQL doesn't write. Compared with MariaDB 10.11 for every character of the first
plane: it differs in a handful of which it makes others."""


@lru_cache(maxsize=65536)
def _has(charset: str, character: str) -> bool:
    if charset == "latin1":
        return character in _LATIN1
    others = _OTHERWISE.get(charset, {})
    if character in others.values() or character in _LACKING.get(charset, ""):
        return character in others.values()
    if charset == "ujis" and "\ue000" <= character <= "\ue757":
        return True  # characters of the user's own
    with suppress(UnicodeEncodeError):
        return character not in others and bool(character.encode(_ASCII_BASED.get(charset, charset)))
    return charset == "big5" and character in "碁銹裏墻恒粧嫺"
