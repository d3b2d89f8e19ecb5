"""Where a subject's texts stand in other texts, and what is left of these."""

import json
import re

import pyarrow as pa
import pytest

from cdc_platform.erasing.quotes import Quotes, parts
from cdc_platform.erasing.rewrite import Texts
from cdc_platform.formats.texts import shown

NAME = "José Müller von der Haide"
NOTE = "".join(f"{i} on the {i + 1}th he said that " for i in range(20))
ADDRESS = "北京市朝阳区建国路八十八号院十二号楼三单元一千零一室" * 4
QUOTED = """it's "his" \\ own"""


def quotes(*texts: str) -> Quotes:
    return Quotes(tuple(p for text in texts for p in parts(text)))


def replaced(told: str, *texts: str) -> str:
    """What is left of a text of bookkeeping."""
    batch = pa.RecordBatch.from_pydict({"reason": [told]})
    work = Texts(("reason",), quotes(*texts))
    mine = work.mine(batch)
    return work.erased(batch, mine)["reason"][0].as_py() if mine.any() else told


@pytest.mark.parametrize("text", [NAME, NOTE, ADDRESS, QUOTED])
@pytest.mark.parametrize("form", [str, ascii, repr, shown, json.dumps, lambda t: ascii(t.encode())])
@pytest.mark.parametrize("around", [str, json.dumps, lambda t: json.dumps([json.dumps(t, ensure_ascii=False)])])
def test_the_whole_text_goes_in_any_form(text, form, around):
    left = replaced(around(f"column 'x' holds {form(text)} of it"), text)
    assert re.sub(r"[^a-z()]+", " ", left).strip() in {f"column x holds {b}(erased) of it" for b in ("", "b ")}


@pytest.mark.parametrize("size", range(8, 70))
def test_a_text_that_was_cut_off_goes_as_far_as_it_is_there(size):
    for text, end in ((NOTE, "..."), (NOTE, "…"), (ADDRESS, "…")):
        assert replaced(f"a row, {text[:size]}{end} is no object", text) == f"a row, (erased){end} is no object"
    told = ascii({"name": ADDRESS, "id": 7})
    assert replaced(f"{told[: 20 + size]}... is no object", ADDRESS) == f"{told[:10]}(erased)... is no object"


def test_of_a_part_alone_all_that_is_there_goes():
    middle = NOTE[100:400]
    assert replaced(f"<{middle}>", NOTE) == "<(erased)>"
    assert replaced(f"<{NOTE[-90:]}>", NOTE) == "<(erased)>"
    assert replaced(f"<{NOTE}> and <{NOTE[:70]}", NOTE) == "<(erased)> and <(erased)"
    assert replaced("<no one> on the list", NOTE) == "<no one> on the list"


def test_the_longest_of_texts_that_hold_each_other_goes_as_one():
    assert replaced(f"of {NAME} the second", NAME, f"{NAME} the second", "Müller") == "of (erased)"


@pytest.mark.parametrize(
    "text",
    ["Zebulon", "王伟", "김철수", "13812345678", "110101199003071234", "10.0.12.34", "+12125550123", "212-555-0123"],
)
def test_what_is_looked_for(text):
    assert replaced(f"'{text}' is no date, nor {text}. It is {text}", text) == (
        "'(erased)' is no date, nor (erased). It is (erased)"
    )
    assert any(p.search(json.dumps({"stats": json.dumps({"max": text})}).encode()) for p in quotes(text).in_bytes)


@pytest.mark.parametrize(
    "text",
    [
        *("", "7", "Anna", "王", "王 1", "第12", "1234567890", "12345678.90", "-123456789", "1.2.3.4"),
        *("1999-09-09", "2026-01-01 00:00:00.500", "-101:59:59.5", "20261129141516"),
        *("1764425716000", "1764425716000000"),
    ],
)
def test_what_stands_anywhere_is_not_looked_for(text):
    assert parts(text) == []


@pytest.mark.parametrize("other", ["113812345678", "138123456789", "13812345678.5", "0.13812345678"])
def test_a_number_is_not_found_in_a_longer_one(other):
    it = quotes("13812345678")
    assert replaced(f"{other} is no date", "13812345678") == f"{other} is no date"
    assert len(it.finder.at(pa.array([other, other.encode().decode()]))) == 0
    assert not any(p.search(f'"size":13812345678,"max":"{other}"'.encode()) for p in it.in_bytes)
    assert it.finder.at(pa.array([b"\xff", b"\xff13812345678\n"], pa.binary())).tolist() == [1]
