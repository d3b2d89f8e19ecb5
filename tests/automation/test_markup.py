"""Names and reasons on Dagster's pages, which take them for Markdown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc_platform.automation.markup import literal, plain


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("shop.order_items: 3 rows (of 5)", "shop.order_items: 3 rows (of 5)"),
        ("shop._a_ *b* <i>x</i>", "shop.&#95;a&#95; &#42;b&#42; &#60;i>x&#60;/i>"),
        ("# a\n> b #c", "&#35; a\n&#62; b #c"),
        ("[a](http://b)", "&#91;a](http://b)"),
        ("`cdc-platform run --table 'a.*_'` rebuilds a`b", "`cdc-platform run --table 'a.*_'` rebuilds a&#96;b"),
    ],
    ids=["as it is", "emphasis and tags", "a heading and a quotation", "a link", "commands stay"],
)
def test_markup_is_shown_as_it_stands(text, shown):
    assert literal(text) == shown


@given(st.text(alphabet="ab_*`&;#<>[]~|\\ \n5é") | st.text())
def test_messages_have_it_as_it_was(text):
    assert plain(literal(text)) == text
