"""Each format's own messages are told from those of all others."""

import pyarrow as pa
import pytest

from cdc_platform.changes.recognize import sure, verdicts
from cdc_platform.formats import FORMATS
from cdc_platform.formats.contract import MESSAGE
from tests.demo.test_decoders_agree import ENCODERS, LANDED, Workload


def sample(values):
    return pa.RecordBatch.from_pylist(
        [
            {"topic": "t", "partition": 0, "offset": i, "timestamp": LANDED, "key": k, "value": v, "landed_at": LANDED}
            for i, (k, v) in enumerate(values)
        ],
        schema=MESSAGE,
    )


def records(name):
    return [(r.key, r.value) for r in ENCODERS[name]().encode(Workload(seed=7, transactions=30).transactions)]


@pytest.mark.parametrize("name", ENCODERS)
def test_the_shop_of_each_vendor_is_recognized(name):
    found = verdicts(sample(records(name)[-150:]), FORMATS)
    assert (found[0].format, found[0].refused, found[0].fits) == (name, 0, True)
    assert sure(found) == "certain"
    assert {v.format for v in found} == set(FORMATS)
    assert all(v.why_not for v in found[1:])


@pytest.mark.parametrize("value", [b"", b"hello", b'{"a": 1}', b"\x00\x01\x02" * 50])
def test_what_no_format_reads_is_told_with_reasons(value):
    found = verdicts(sample([(None, value)] * 3), FORMATS)
    assert sure(found) == "none"
    assert [v.format for v in found if v.fits] == []


def test_nothing_is_no_format():
    assert sure([]) == "none"
