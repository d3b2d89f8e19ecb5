"""Scenarios of all formats that come as JSON."""

import gc
import weakref

import pytest

from cdc_platform.formats import FORMATS
from cdc_platform.formats.contract import EVENT
from tests.formats import json_fixtures
from tests.formats.json_fixtures import decoder, exact, expected, load, readable, scenarios

SCENARIOS = [(name, scenario) for name in json_fixtures.NAMES for scenario in scenarios(name)]
each = pytest.mark.parametrize(("name", "scenario"), SCENARIOS)


@each
def test_scenario(name, scenario):
    batch, options = load(name, scenario)
    found = decoder(name, batch, options)(batch)
    found.validate(full=True)
    assert found.schema == EVENT
    assert readable(found) == expected(name, scenario)


@each
def test_message_by_message_gives_the_same_events(name, scenario):
    batch, options = load(name, scenario)
    decode = decoder(name, batch, options)
    alone = [e for i in range(len(batch)) for e in readable(decode(batch.slice(i, 1))) if e["kind"] != "schema"]
    assert alone == [e for e in readable(decode(batch)) if e["kind"] != "schema"]


@each
def test_scanned_messages_give_what_exact_reading_gives(name, scenario):
    batch, options = load(name, scenario)
    decode = decoder(name, batch, options)
    assert decode(batch).equals(exact(decode, batch))


@pytest.mark.parametrize("name", json_fixtures.NAMES)
def test_what_was_read_of_a_batch_is_gone_without_a_collection(name):
    """A cycle would keep all of it, and collections would walk it."""
    batch, options = load(name, scenarios(name)[0])
    messages = weakref.ref(batch)
    gc.disable()
    try:
        FORMATS[name].decode(batch, options)
        del batch
        assert messages() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("name", json_fixtures.NAMES)
def test_every_fixture_has_its_expected_events(name):
    files = {path.stem for path in (json_fixtures.FIXTURES / name).glob("*.json")}
    found = scenarios(name)
    assert files == {*found, *(f"{scenario}.expected" for scenario in found)}
    assert len(found) > 10
