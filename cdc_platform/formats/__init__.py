"""The registry of wire formats: a sixth format is one file, one word here, and its fixtures."""

from collections.abc import Iterator, Mapping
from importlib import import_module

from cdc_platform.formats.contract import Format

_NAMES = ("tencent_dts", "debezium", "canal_json", "canal", "dataworks", "tdsql")


class _Registry(Mapping[str, Format]):
    """Name → format; a format's modules are loaded when it is asked for: many a process needs one of them, or none but
    their names."""

    def __getitem__(self, name: str) -> Format:
        if name not in _NAMES:
            raise KeyError(name)
        return import_module(f"cdc_platform.formats.{name}").FORMAT

    def __contains__(self, name: object) -> bool:
        return name in _NAMES

    def __iter__(self) -> Iterator[str]:
        return iter(_NAMES)

    def __len__(self) -> int:
        return len(_NAMES)


FORMATS = _Registry()
