"""`shadow:`: two sources, told apart and known."""

from typing import Any

import pytest

from cdc_platform.config import parse_config
from cdc_platform.errors import ConfigError


def raw(shadow: Any) -> dict[str, Any]:
    names = ("a", "b", "c", "d")
    return {
        "lake": "/lake",
        "sources": [{"name": n, "format": "tdsql", "topics": [n]} for n in names],
        "shadow": shadow,
    }


def test_one_pair_or_several():
    assert [(p.of, p.by) for p in parse_config(raw({"of": "a", "by": "b"})).shadow] == [("a", "b")]
    config = parse_config(raw([{"of": "a", "by": "b"}, {"of": "d", "by": "c", "tables": ["x.*"]}]))
    assert config.shadow_of("d").by == "c"
    assert config.shadow_of("d").wanted("x.t")
    assert not config.shadow_of("d").wanted("y.t")
    with pytest.raises(ConfigError, match="no pair is 'b'; valid: a by b, d by c"):
        config.shadow_of("b")
    assert parse_config(raw([])).shadow == []


@pytest.mark.parametrize(
    ("shadow", "key", "problem"),
    [
        ({"of": "a", "by": "a"}, "shadow[0]", "'a' can't shadow itself"),
        ({"of": "a", "by": "x"}, "cdc.yaml", "no source is called 'x'; valid: a, b, c, d"),
        ([{"of": "a", "by": "b"}, {"of": "c", "by": "a"}], "cdc.yaml", "'a' is in two pairs"),
        ({"of": "a", "by": "b", "tables": ["x"]}, "shadow[0].tables", "'x' can match no table"),
        ({"of": "a", "by": "b", "settle_s": 0}, "shadow[0].settle_s", "greater than or equal to 1"),
        ({"of": "a", "by": "b", "cron": "often"}, "shadow[0].cron", "'often' is no cron expression"),
        ({"of": "a", "by": "b", "from": 1}, "shadow[0].from", "unknown key"),
        ({"of": "a"}, "shadow[0].by", "Field required"),
    ],
)
def test_what_is_wrong_is_told(shadow, key, problem):
    with pytest.raises(ConfigError) as error:
        parse_config(raw(shadow))
    assert error.value.key == key
    assert problem in error.value.problem
