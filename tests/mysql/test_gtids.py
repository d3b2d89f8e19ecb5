"""What sets of GTIDs have in common: MySQL's as the server's own function says it, MariaDB's by domain."""

import random

import pytest

from cdc_platform.mysql.gtids import common

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
