"""Owners, tags and descriptions: whose snapshot they are, and that Dagster takes what the configuration takes."""

from itertools import product

import pytest
from dagster import AssetSpec, DagsterInvalidDefinitionError

from cdc_platform.config import Source, parse_config
from cdc_platform.errors import ConfigError
from tests.config.test_config import raw


def source(tables=None, **fields) -> Source:
    return parse_config(raw({"tables": tables or {}, **fields})).source("shop")


OWNERS = ["team:data", "ann@example.com", "team:", "data", "ann@example", "ann@exa mple.com", "team:Ü", "a|b@c.d"]
KEYS = ["pii", "dagster/kind", "a/b", "a/b/c", "", "x y", "x" * 63, "x" * 64, "ü"]
VALUES = ["", "true", "a b", "x" * 63, "x" * 64]


@pytest.mark.parametrize("owner", OWNERS)
def test_an_owner_is_taken_where_dagster_takes_it(owner):
    assert _taken(lambda: source(owners=[owner])) is _taken(lambda: AssetSpec("a", owners=[owner]))


@pytest.mark.parametrize(("key", "value"), list(product(KEYS, VALUES)))
def test_a_tag_is_taken_where_dagster_takes_it_but_for_its_own(key, value):
    taken = _taken(lambda: source(tags={key: value}))
    assert taken is (_taken(lambda: AssetSpec("a", tags={key: value})) and not key.startswith("dagster/"))


def _taken(make) -> bool:
    try:
        make()
    except (ConfigError, DagsterInvalidDefinitionError):
        return False
    return True


@pytest.mark.parametrize(
    ("field", "value", "key"),
    [
        ("owners", {"shop.*": ["data"]}, "sources[0].tables.owners.shop.*[0]"),
        ("tags", {"shop.*": {"p i": "x"}}, "sources[0].tables.tags.shop.*"),
        ("tags", {"shop.*": "pii"}, "sources[0].tables.tags.shop.*"),
        ("descriptions", {"shop.*": ["x"]}, "sources[0].tables.descriptions.shop.*"),
    ],
)
def test_a_wrong_value_of_a_pattern_is_named(field, value, key):
    with pytest.raises(ConfigError) as caught:
        source({field: value})
    assert caught.value.key == key


def test_the_first_pattern_decides_owners_and_the_source_owns_the_rest():
    shop = source({"owners": {"shop.pay*": ["team:finance"], "shop.payments": ["team:x"]}}, owners=["team:data"])
    assert shop.owners_of("shop", "payments") == ["team:finance"]
    assert shop.owners_of("shop", "orders") == ["team:data"]


def test_a_table_may_be_nobodys():
    assert source({"owners": {"shop.tmp": []}}, owners=["team:data"]).owners_of("shop", "tmp") == []


def test_tags_of_all_patterns_and_of_the_source_are_put_together():
    shop = source(
        {"tags": {"shop.users": {"pii": True, "tier": "1"}, "shop.*": {"tier": "2", "domain": "web"}}},
        tags={"domain": "all", "vendor": "tencent"},
    )
    assert shop.tags_of("shop", "users") == {"pii": "true", "tier": "1", "domain": "web", "vendor": "tencent"}
    assert shop.tags_of("crm", "users") == {"domain": "all", "vendor": "tencent"}


def test_the_first_pattern_decides_a_description():
    tables = source({"descriptions": {"*.orders": "orders", "shop.*": "shop"}}).tables
    assert tables.description_of("shop", "orders") == "orders"
    assert tables.description_of("crm", "users") is None
