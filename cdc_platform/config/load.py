"""Reading cdc.yaml: YAML, `${ENV_VAR}`, the models, and the options of each source's format."""

import os
import re
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from cdc_platform.config.bridges import Bridge, check_secrets
from cdc_platform.config.lake import absolute
from cdc_platform.config.reconcile import Reconcile
from cdc_platform.config.root import Config, Maintenance, Spark
from cdc_platform.config.source import Source
from cdc_platform.config.tables import Tables
from cdc_platform.errors import ConfigError

_ENV = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


_DEFAULT, _DEMO = Path("cdc.yaml"), Path(".cdc/demo/cdc.yaml")


def config_file(path: str | os.PathLike[str] | None = None) -> Path:
    """The file that `load_config` reads. Where that is ./cdc.yaml, nobody has written one and `cdc-platform demo` has
    run here: the demo's."""
    file = Path(path or os.environ.get("CDC_CONFIG") or _DEFAULT).expanduser()
    if file == _DEFAULT and not file.is_file() and _DEMO.is_file():
        file = _DEMO
    return file.absolute()


def load_config(path: str | os.PathLike[str] | None = None) -> Config:
    """Read cdc.yaml from `path`, else $CDC_CONFIG, else ./cdc.yaml (see `config_file`). Raises ConfigError."""
    key = "cdc.yaml" if path is None or Path(path) == Path("cdc.yaml") else "--config"
    key = "CDC_CONFIG" if os.environ.get("CDC_CONFIG") and str(path or "") in ("", os.environ["CDC_CONFIG"]) else key
    file = config_file(path)
    if not file.is_file():
        raise ConfigError(key, f"there is no file {file}", ["the path of a cdc.yaml, by --config or CDC_CONFIG"])
    try:
        raw = yaml.safe_load(file.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "somewhere"
        raise ConfigError(str(file), f"is not YAML: {getattr(error, 'problem', 'unreadable')} at {place}") from None
    if not isinstance(raw, dict):
        raise ConfigError(str(file), "must hold a mapping", Config.model_fields)
    config = parse_config(raw, file)
    return config


def parse_config(raw: dict[str, Any], file: Path = Path("cdc.yaml")) -> Config:
    """A parsed mapping → Config; paths without a scheme are taken relative to the file's folder. Raises ConfigError."""
    check_secrets(raw)
    filled = _fill(raw, "")
    try:
        config = Config.model_validate(filled)
    except ValidationError as error:
        raise _config_error(error) from None
    _check_formats(config)
    config = config.model_copy(update={"lake": absolute(config.lake, file.parent)})
    config._file = file
    return config


def _check_formats(config: Config) -> None:
    from cdc_platform.formats import FORMATS

    for i, source in enumerate(config.sources):
        if source.format not in FORMATS:
            raise ConfigError(f"sources[{i}].format", f"unknown format {source.format!r}", FORMATS)
        try:
            FORMATS[source.format].options.model_validate(source.options)
        except ValidationError as error:
            raise _config_error(error, f"sources[{i}].options", FORMATS[source.format].options) from None


def _fill(value: Any, key: str) -> Any:
    """Replace ${ENV} in all texts; an unset variable is an error that names key and variable."""
    if isinstance(value, dict):
        return {k: _fill(v, f"{key}.{k}" if key else str(k)) for k, v in value.items()}
    if isinstance(value, list):
        return [_fill(v, f"{key}[{i}]") for i, v in enumerate(value)]
    if not isinstance(value, str):
        return value

    def one(found: re.Match[str]) -> str:
        name = found.group(1)
        if name not in os.environ:
            raise ConfigError(key, f"environment variable {name} is not set")
        return os.environ[name]

    return _ENV.sub(one, value)


def _config_error(error: ValidationError, prefix: str = "", model: type[BaseModel] = Config) -> ConfigError:
    """The first finding of pydantic, without the offending value (it may be a secret)."""
    first = error.errors(include_input=False, include_url=False)[0]
    key = prefix
    for part in first["loc"]:
        key += f"[{part}]" if isinstance(part, int) else f"{'.' if key else ''}{part}"
    if first["type"] == "extra_forbidden":
        return ConfigError(key, "unknown key", _keys_at(model, first["loc"][:-1]))
    return ConfigError(key or "cdc.yaml", first["msg"].removeprefix("Value error, "))


def _keys_at(model: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    nested: dict[str, type[BaseModel]] = {
        "sources": Source,
        "bridges": Bridge,
        "tables": Tables,
        "spark": Spark,
        "reconcile": Reconcile,
        "maintenance": Maintenance,
    }
    for part in loc:
        model = nested.get(str(part), model) if isinstance(part, str) else model
    return list(model.model_fields)
