"""Reading cdc.yaml: YAML, `${ENV_VAR}`, the models, and the options of each source's format."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from cdc_platform.config.alerts import Alerts, Email, Slack, Webhook, plain_alert_secrets
from cdc_platform.config.bridges import Bridge
from cdc_platform.config.lake import absolute
from cdc_platform.config.reconcile import Reconcile
from cdc_platform.config.root import Config, Maintenance, Spark
from cdc_platform.config.secrets import plain_secrets
from cdc_platform.config.shadow import Shadow
from cdc_platform.config.source import Source
from cdc_platform.config.storage import Storage, spark_errors
from cdc_platform.config.tables import Tables
from cdc_platform.errors import ConfigError, ConfigErrors

_ENV = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

_TELLING = 4
"""Characters from which on a value is replaced wherever it stands in a message; shorter ones only in quotes."""


class _Loader(yaml.SafeLoader):
    """YAML as it is safe to load, without what a mapping says twice: of two equal keys the first would be lost."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """As SafeLoader does. Raises yaml.constructor.ConstructorError at the second of two equal keys."""
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
            if key is not None and key in seen and key != "<<":
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} stands here twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


_DEFAULT, _DEMO = Path("cdc.yaml"), Path(".cdc/demo/cdc.yaml")


def config_file(path: str | os.PathLike[str] | None = None) -> Path:
    """The file that `load_config` reads. Where that is ./cdc.yaml, nobody has written one and `cdc-platform demo` has
    run here: the demo's."""
    file = Path(path or os.environ.get("CDC_CONFIG") or _DEFAULT).expanduser()
    if file == _DEFAULT and not file.is_file() and _DEMO.is_file():
        file = _DEMO
    return file.absolute()


def load_config(path: str | os.PathLike[str] | None = None) -> Config:
    """Read cdc.yaml from `path`, else $CDC_CONFIG, else ./cdc.yaml (see `config_file`). Raises ConfigError,
    ConfigErrors."""
    key = "cdc.yaml" if path is None or Path(path) == Path("cdc.yaml") else "--config"
    key = "CDC_CONFIG" if os.environ.get("CDC_CONFIG") and str(path or "") in ("", os.environ["CDC_CONFIG"]) else key
    file = config_file(path)
    if not file.is_file():
        raise ConfigError(key, f"there is no file {file}", ["the path of a cdc.yaml, by --config or CDC_CONFIG"])
    try:
        raw = _Loader(file.read_text(encoding="utf-8")).get_single_data()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f"line {mark.line + 1}, column {mark.column + 1}" if mark else "somewhere"
        raise ConfigError(str(file), f"is not YAML: {getattr(error, 'problem', 'unreadable')} at {place}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(str(file), f"is not UTF-8: at byte {error.start}") from None
    if not isinstance(raw, dict):
        raise ConfigError(str(file), "must hold a mapping", Config.model_fields)
    return parse_config(raw, file)


def parse_config(raw: dict[str, Any], file: Path = Path("cdc.yaml")) -> Config:
    """A parsed mapping → Config; paths without a scheme are taken relative to the file's folder. Raises ConfigError, or
    ConfigErrors where more than one thing is wrong; no message holds a value from the environment."""
    from_env: dict[str, str] = {}
    unset: list[ConfigError] = []
    filled = _fill(raw, "", from_env, unset)
    errors = [*plain_secrets(raw), *plain_alert_secrets(raw), *unset]
    config, lake = None, ""
    try:
        config = Config.model_validate(filled)
    except ValidationError as error:
        errors += _config_errors(error)
    errors += _format_errors(filled)
    errors += spark_errors(config.spark.conf if config else {})
    try:
        if isinstance(filled.get("lake"), str):
            lake = absolute(filled["lake"], file.parent)
    except ConfigError as error:
        errors.append(error)
    if errors := _distinct(errors, {e.key for e in unset}):
        told = [_without(e, from_env) for e in errors]
        raise told[0] if len(told) == 1 else ConfigErrors(told)
    assert config is not None
    config = config.model_copy(update={"lake": lake})
    config._file = file
    return config


def with_options(source: Source, options: Mapping[str, Any], key: str) -> Source:
    """A source with other options of its format; None: the option's default. key: what errors name. Raises ConfigError,
    ConfigErrors."""
    from cdc_platform.formats import FORMATS

    model = FORMATS[source.format].options
    merged = {
        k: v
        for k, v in {**source.options, **options}.items()
        if v is not None or k not in model.model_fields  # which the model refuses
    }
    try:
        model.model_validate(merged)
    except ValidationError as error:
        errors = _config_errors(error, key, model)
        raise errors[0] if len(errors) == 1 else ConfigErrors(errors) from None
    return source.model_copy(update={"options": merged})


def _distinct(errors: list[ConfigError], unset: set[str]) -> list[ConfigError]:
    """Without what follows from an unset variable, and of several errors of one key the first."""
    first: dict[str, ConfigError] = {}
    for error in errors:
        if error.key not in unset or error.key not in first:
            first.setdefault(error.key, error)
    return list(first.values())


def _without(error: ConfigError, from_env: dict[str, str]) -> ConfigError:
    """An error whose text shows `${NAME}` where it showed a value from the environment."""
    problem = error.problem
    for name, value in from_env.items():
        for text in (repr(value), *([value] if len(value) >= _TELLING else [])):
            problem = problem.replace(text, f"${{{name}}}")
    return ConfigError(error.key, problem, error.valid)


def _format_errors(filled: dict[str, Any]) -> Iterator[ConfigError]:
    from cdc_platform.formats import FORMATS

    sources = filled.get("sources")
    for i, source in enumerate(sources if isinstance(sources, list) else []):
        name = source.get("format") if isinstance(source, dict) else None
        if not isinstance(name, str):
            continue  # refused by the model
        if name not in FORMATS:
            yield ConfigError(f"sources[{i}].format", f"unknown format {name!r}", FORMATS)
            continue
        options = FORMATS[name].options
        try:
            options.model_validate(source.get("options") or {})
        except ValidationError as error:
            yield from _config_errors(error, f"sources[{i}].options", options)


def _fill(value: Any, key: str, from_env: dict[str, str], unset: list[ConfigError]) -> Any:
    """Replaces ${ENV} in all texts, and notes the values; an unset variable becomes an error that names it."""
    if isinstance(value, dict):
        return {k: _fill(v, f"{key}.{k}" if key else str(k), from_env, unset) for k, v in value.items()}
    if isinstance(value, list):
        return [_fill(v, f"{key}[{i}]", from_env, unset) for i, v in enumerate(value)]
    if not isinstance(value, str):
        return value

    def one(found: re.Match[str]) -> str:
        name = found.group(1)
        if name not in os.environ:
            unset.append(ConfigError(key, f"environment variable {name} is not set"))
            return found.group()
        from_env[name] = os.environ[name]
        return os.environ[name]

    return _ENV.sub(one, value)


def _config_errors(error: ValidationError, prefix: str = "", model: type[BaseModel] = Config) -> list[ConfigError]:
    """The findings of pydantic, without the offending values (they may be secrets)."""
    found = []
    for one in error.errors(include_input=False, include_url=False):
        key = prefix
        for part in one["loc"]:
            key += f"[{part}]" if isinstance(part, int) else f"{'.' if key else ''}{part}"
        if one["type"] == "extra_forbidden":
            found.append(ConfigError(key, "unknown key", _keys_at(model, one["loc"][:-1])))
        else:
            found.append(ConfigError(key or "cdc.yaml", one["msg"].removeprefix("Value error, ")))
    return found


def _keys_at(model: type[BaseModel], loc: tuple[int | str, ...]) -> list[str]:
    nested: dict[str, type[BaseModel]] = {
        "sources": Source,
        "bridges": Bridge,
        "tables": Tables,
        "spark": Spark,
        "storage": Storage,
        "reconcile": Reconcile,
        "shadow": Shadow,
        "maintenance": Maintenance,
        "alerts": Alerts,
        "email": Email,
        "slack": Slack,
        "webhook": Webhook,
    }
    for part in loc:
        model = nested.get(str(part), model) if isinstance(part, str) else model
    return list(model.model_fields)
