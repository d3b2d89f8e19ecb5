"""`{"schema":…,"payload":…}` as Kafka Connect's JsonConverter writes it, told from bare payloads."""

from functools import lru_cache
from typing import Any

import msgspec

from cdc_platform.formats.exact_json import read_json
from cdc_platform.formats.texts import shown


class Schema:
    """A parsed schema block: `name`, fields of a row (of before/after for an envelope, else its own), their names."""

    __slots__ = ("fields", "name", "names")

    def __init__(self, block: dict):
        self.name: str | None = block.get("name")
        own: list[dict] = block.get("fields") or []
        images = {f.get("field"): f for f in own}
        image = images.get("after") or images.get("before")
        self.fields: list[dict] = (image.get("fields") or []) if image and "op" in images else own
        self.names = tuple(str(f.get("field")) for f in self.fields)


class _Wrapped(msgspec.Struct):
    schema: msgspec.Raw
    payload: msgspec.Raw


_WRAPPER = msgspec.json.Decoder(_Wrapped)


_WRAPPER_KEYS = {"schema", "payload"}


_PREFIXES_PER_TOPIC = 16


@lru_cache(maxsize=1024)
def _schema(block: bytes) -> Schema:
    value = read_json(block)
    if type(value) is not dict:
        raise ValueError(f"schema {shown(value)} is no object")
    return Schema(value)


def _alone(value: Any) -> Any:
    """A payload in a wrapper without a schema, as TiCDC writes it with debezium-disable-schema."""
    wrapped = type(value) is dict and value.keys() == {"payload"} and type(value["payload"]) is dict
    return value["payload"] if wrapped else value


class Unwrapper:
    """Messages → (schema or None, payload). Remembers, per topic, the bytes before the payload: comparing
    them costs a tenth of parsing the schema block again."""

    def __init__(self) -> None:
        self._known: dict[str, list[tuple[bytes, Schema | None]]] = {}

    def __call__(self, topic: str, data: bytes) -> tuple[Schema | None, Any]:
        for prefix, schema in self._known.get(topic, ()):
            if data.startswith(prefix) and data.endswith(b"}"):
                return schema, read_json(data[len(prefix) : -1])
        value = read_json(data)
        if type(value) is not dict or value.keys() != _WRAPPER_KEYS:
            return None, _alone(value)
        block = bytes(_WRAPPER.decode(data).schema).strip()
        schema = None if block == b"null" else _schema(block)
        prefix = b'{"schema":' + block + b',"payload":'
        if data.startswith(prefix):
            self._known[topic] = [(prefix, schema), *self._known.get(topic, ())][:_PREFIXES_PER_TOPIC]
        return schema, value["payload"]
