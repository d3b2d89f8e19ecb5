"""Errors keep their facts as fields, tell them in the message and say whether a retry makes sense."""

import inspect

import pytest

from cdc_platform import errors
from cdc_platform.errors import (
    CdcError,
    ConfigError,
    KafkaUnreachable,
    OffsetsLost,
    RunInProgress,
    TableStopped,
)

KINDS = [c for _, c in inspect.getmembers(errors, inspect.isclass) if c.__module__ == errors.__name__]


def test_all_are_of_one_family():
    assert all(issubclass(kind, CdcError) for kind in KINDS)


def test_only_what_may_pass_by_itself_is_retriable():
    passing = {"AlertNotSent", "KafkaUnreachable", "LeaseLost", "RunInProgress", "SparkUnreachable"}
    assert {k.__name__ for k in KINDS if k.retriable} == passing


def test_lost_offsets_are_told_by_topic_partition_and_range_with_the_way_out():
    losses = [
        {"topic": "a", "partition": 3, "from_offset": 10, "to_offset": 15, "why": "retention"},
        {"topic": "b", "partition": 0, "from_offset": 0, "to_offset": 1, "why": "made again"},
    ]
    error = OffsetsLost("shop", losses)
    assert (error.source, error.losses) == ("shop", losses)
    for told in (
        "a[3] offsets 10..14 (retention)",
        "b[0] offsets 0..0",
        "Nothing was landed",
        "on_lost_offsets: accept",
    ):
        assert told in str(error)


@pytest.mark.parametrize(
    ("error", "fields"),
    [
        (
            ConfigError("a.b", "is wrong", ["x", "y"]),
            {"key": "a.b", "problem": "is wrong", "valid": ("x", "y")},
        ),
        (KafkaUnreachable("shop", "h:1", "refused"), {"source": "shop", "servers": "h:1"}),
        (
            TableStopped("shop", ("d", "t`x"), "no key"),
            {"source": "shop", "name": ("d", "t`x"), "reason": "no key"},
        ),
        (RunInProgress("shop", 60.0), {"source": "shop"}),
    ],
)
def test_fields_are_kept_and_told(error, fields):
    assert {name: getattr(error, name) for name in fields} == fields
    told = [v for value in fields.values() for v in (value if isinstance(value, tuple) else (value,))]
    assert all(v in str(error) for v in told)
