"""What sets of GTIDs have in common: MySQL's as the server's own function says it, MariaDB's by domain."""

import random
import re

import pytest

from cdc_platform.mysql.gtids import common, newest_pattern, numbers, single, without

A, B = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562"


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        ([f"{A}:1-7"], f"{A}:1-7"),
        ([f"{A}:1-7", f"{A}:1-9"], f"{A}:1-7"),
        ([f"{A}:1-7:9,\n{B}:1-3", f"{B}:2-5,{A}:3-12"], f"{A}:3-7:9,{B}:2-3"),
        ([f"{A}:1-7,{B}:1", f"{A.upper()}:5"], f"{A}:5"),
        ([f"{A}:1-2:3-4:9", f"{A}:1-9"], f"{A}:1-4:9"),
        ([f"{A}:1-5:tag:1-3", f"{A}:2:tag:2-9"], f"{A}:2,{A}:tag:2-3"),
        ([f"{A}:1-7", f"{B}:1-7"], ""),
        (["0-1-100,1-2-7", "0-1-90,1-2-9"], "0-1-90,1-2-7"),
        (["0-1-100,5-1-1", "0-1-100"], "0-1-100"),
        (["0-1-100,1-2-7", "0-2-90,1-2-9"], "1-2-7"),  # nothing tells which of two servers' is the later one
        (["0-1-100,0-2-90", "0-1-80"], ""),
        (["0-1-100,0-2-90", "0-2-90,0-1-100"], ""),
        (["0-1-100", f"{A}:1-7"], None),
        (["0-1-100", "0-1-x"], None),
        (["what", "ever"], None),
        (["what", "what"], "what"),
        ([f"{A}:1-7", A], None),
    ],
)
def test_what_sets_have_in_common(sets: list[str], expected: str | None):
    assert common(sets) == expected
    assert common(sets[::-1]) == expected


def test_it_is_what_the_sets_of_numbers_have_in_common():
    dice = random.Random(1)

    def numbers(text: str | None) -> set[tuple[str, int]]:
        found = set()
        for part in (text or "").split(",") if text else []:
            uuid, *ranges = part.split(":")
            for r in ranges:
                first, _, last = r.partition("-")
                found |= {(uuid, n) for n in range(int(first), int(last or first) + 1)}
        return found

    def some() -> str:
        ends = [sorted(dice.sample(range(1, 30), 2)) for _ in range(dice.randint(1, 4))]
        return ",".join(f"{uuid}:" + ":".join(f"{a}-{b}" for a, b in ends) for uuid in dice.sample([A, B], 1))

    for _ in range(300):
        sets = [",".join(some() for _ in range(2)) for _ in range(3)]
        found = set.intersection(*(numbers(text) for text in sets))
        assert numbers(common(sets)) == found, sets


def test_what_one_set_has_and_another_has_not():
    dice = random.Random(2)
    for _ in range(500):
        one, other = ({n for n in range(1, 30) if dice.random() < 0.5} | {31} for _ in range(2))
        texts = [":".join([A, *map(str, dice.sample(sorted(of), len(of)))]) for of in (one, other)]
        left = without(numbers(texts[0]) or {}, numbers(texts[1]) or {})
        assert {n for a, b in left.get(A, []) for n in range(a, b + 1)} == one - other


@pytest.mark.parametrize(
    ("text", "name", "number"),
    [
        (f"{A}:7", A, 7),
        (f"{A}:1-7", A, 7),
        (f"{A}:1-3:5-70", A, 70),
        (f"{A}:1-3:5,{B}:1-9", A, 5),
        (f"{A}:1-3:5,{B}:1-9", B, 9),
        (f"{A}:1-3:tag:1-8:tag2:9", A, 3),
        (f"{A}:1-3:tag:1-8:tag2:9", f"{A}:tag", 8),
        (f"{A}:1-3:tag:1-8:tag2:9", f"{A}:tag2", 9),
        (f"{A}:tag2:9", A, None),
        (f"{A}:tag2:9", f"{A}:tag", None),
        (f"{A}:1-3,{B}:tag:9", f"{A}:tag", None),
        ("0-1-100", "0", 100),
        ("10-1-100,0-2-7", "0", 7),
        ("10-1-100,1-2-7", "0", None),
    ],
)
def test_the_last_number_under_a_name(text: str, name: str, number: int | None):
    found = re.search(newest_pattern(name), text)
    assert (found and int(found[1])) == number


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{A.upper()}:7", (A, 7)),
        (f"{A}:Tag:7", (f"{A}:tag", 7)),
        (f"{A}:1-7", None),
        (f"{A}:7,{B}:7", None),
        ("0-1-100", ("0", 100)),
        ("0-1-100,1-1-1", None),
        ("2026", None),
    ],
)
def test_what_is_one_gtid(text: str, expected: tuple[str, int] | None):
    assert single(text) == expected
