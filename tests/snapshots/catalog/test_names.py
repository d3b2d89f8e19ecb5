"""Names of snapshots in catalogs."""

from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.config import Catalog
from cdc_platform.snapshots.catalog.names import allowed, entry

NAMES = st.text(st.sampled_from("aZ_5é-. "), max_size=8)


@given(NAMES, NAMES)
def test_different_names_stay_different(one: str, other: str) -> None:
    assert (allowed(one) == allowed(other)) is (one == other)


@given(st.text(max_size=20))
def test_names_are_lower_case_letters_digits_and_underscores(name: str) -> None:
    assert all(c in "abcdefghijklmnopqrstuvwxyz0123456789_" for c in allowed(name))


def test_usual_names_stay_as_they_are() -> None:
    assert [allowed(n) for n in ("order_items_2", "Orders", "a__b", "`; DROP")] == [
        "order_items_2", "__4frders", "a__5f__5fb", "__60__3b__20__44__52__4f__50",
    ]  # fmt: skip


def test_the_database_is_named_by_the_pattern() -> None:
    assert str(entry(Catalog(kind="hive"), "my-shop", ("db", "t"))) == "`spark_catalog`.`my__2dshop_db`.`t`"
    named = Catalog(kind="spark", name="unity", database="cdc_{db}")
    assert str(entry(named, "shop", ("db", "t"))) == "`unity`.`cdc_db`.`t`"
