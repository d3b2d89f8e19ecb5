"""Which tables and columns of two feeds are one another's, and what is said of the others."""

import pytest

from cdc_platform.config.shadow import Shadow
from cdc_platform.shadow import pairing

PAIR = Shadow(of="a", by="b")


@pytest.mark.parametrize(
    ("of", "by", "found"),
    [
        (["t"], ["t"], {"t": "t"}),
        (["Orders"], ["orders"], {"Orders": "orders"}),
        (["Orders", "orders"], ["orders"], {"Orders": None, "orders": "orders"}),
        (["Orders"], ["orders", "ORDERS"], {"Orders": None}),
        (["ORDERS", "Orders"], ["orders"], {"ORDERS": None, "Orders": None}),
        (["t"], ["u"], {"t": None}),
    ],
)
def test_names_that_differ_by_case_alone_are_one_where_nothing_else_could_be_meant(of, by, found):
    told = pairing.match([("d", n) for n in of], [("d", n) for n in by])
    assert {k[1]: v and v[1] for k, v in told.items()} == found


def columns(of, by, keys=(["id"], ["id"])):
    return pairing.columns(PAIR, of, by, keys)


def test_columns_that_one_lacks_or_has_in_another_type_are_named():
    found = columns(
        {"id": "int", "n": "int", "x": "string", "_cdc_order": "s"}, {"id": "int", "n": "bigint", "y": "date"}
    )
    assert (found.keys, found.compared, found.reason) == (["id"], ["id"], None)
    left = {"n": "it is int in a, bigint in b", "x": "only a has it", "y": "only b has it"}
    assert found.not_compared == left


@pytest.mark.parametrize(
    ("of", "by", "keys", "reason"),
    [
        ({"id": "int"}, {"id": "int"}, (None, ["id"]), "the key isn't known in a"),
        ({"id": "int"}, {"id": "int"}, (["id"], None), "the key isn't known in b"),
        ({"id": "int"}, {"id": "int"}, (["id"], []), r"different keys \(a: id; b: none\)"),
        ({"id": "int"}, {"id": "bigint"}, (["id"], ["id"]), "key column id can't be compared: it is int in a"),
        ({"id": "int", "x": "int"}, {"id": "int"}, ([], []), "it has no key, and not all of its columns"),
        ({"id": "int"}, {"no": "int"}, ([], []), "no key"),
    ],
)
def test_tables_that_cant_be_compared_say_why(of, by, keys, reason):
    import re

    assert re.search(reason, columns(of, by, keys).reason or "")


def test_the_order_of_a_keys_columns_doesnt_matter():
    found = columns({"a": "int", "b": "int"}, {"b": "int", "a": "int"}, (["a", "b"], ["b", "a"]))
    assert (found.keys, found.reason) == (["a", "b"], None)


def test_origins_of_merged_tables_are_part_of_the_key():
    own = {"id": "int", "_cdc_db": "string", "_cdc_table": "string"}
    key = ["id", "_cdc_db", "_cdc_table"]
    assert columns(own, own, (key, key)).compared == ["id", "_cdc_db", "_cdc_table"]
