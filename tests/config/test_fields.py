"""Every field of cdc.yaml says what it is, with an example that the model takes: the reference is made from them."""

from typing import get_args

import pytest
from pydantic import BaseModel, TypeAdapter

from cdc_platform.config import Alerts, Bridge, Catalog, Config, Maintenance, Reconcile, Source, Spark, Storage, Tables
from cdc_platform.config.alerts import Email, Slack, Webhook
from cdc_platform.config.bridges import Begin
from cdc_platform.config.shadow import Shadow
from cdc_platform.formats import FORMATS

MODELS: list[type[BaseModel]] = [
    Config,
    Source,
    Tables,
    Spark,
    Storage,
    Maintenance,
    Reconcile,
    Shadow,
    Bridge,
    Begin,
    Catalog,
    Alerts,
    Email,
    Slack,
    Webhook,
    *(f.options for f in FORMATS.values()),
]
FIELDS = [(model, name) for model in dict.fromkeys(MODELS) for name in model.model_fields]


def test_no_model_is_missing():
    def models(kind) -> set[type]:
        inner = {m for arg in get_args(kind) for m in models(arg)}
        return inner | ({kind} if isinstance(kind, type) and issubclass(kind, BaseModel) else set())

    nested = {m for model in MODELS for field in model.model_fields.values() for m in models(field.annotation)}
    assert nested <= set(MODELS)


@pytest.mark.parametrize(("model", "name"), FIELDS, ids=[f"{m.__name__}.{n}" for m, n in FIELDS])
def test_a_field_has_a_description_and_an_example_that_is_valid(model, name):
    field = model.model_fields[name]
    assert field.description
    assert field.examples
    kind = TypeAdapter(field.rebuild_annotation())
    for example in field.examples:
        kind.validate_python(example)
