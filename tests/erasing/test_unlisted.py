"""Sources that the lake has rows of, and that cdc.yaml lacks: nothing is erased there."""

from cdc_platform.erasing.search import unlisted
from cdc_platform.tables import CHANGELOG, LANDING, OFFSET_LEDGER
from tests.rows import add


def test_sources_that_the_lake_has_rows_of(make_config):
    config = make_config([{"name": "s", "format": "canal", "topics": ["t"]}])
    assert unlisted(config) == []
    add(config.lake, OFFSET_LEDGER, *({"source": name, "batch": 0} for name in ("s", "cut", "landed", "removed")))
    add(config.lake, CHANGELOG, {"source": "s", "topic": "t"})
    assert unlisted(config) == []
    add(config.lake, CHANGELOG, {"source": "cut", "topic": "t"})
    add(config.lake, LANDING, {"topic": "t"}, source="landed")
    assert unlisted(config) == ["cut", "landed"]
