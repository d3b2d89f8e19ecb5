"""What is a secret in cdc.yaml: it comes from the environment only, and is kept out of what people see."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from cdc_platform.errors import ConfigError

SECRET_KEYS = re.compile(
    r"password|passphrase|secret|jaas|token|credential|\.key$|keystore\.key|key\.pem|access.key|account.key",
    re.IGNORECASE,
)
"""Property keys whose values are hidden where they are shown: rather one too many."""

_MUST_BE_FROM_ENV = re.compile(
    r"password|passphrase|jaas\.config|secret$|secret[._-]?key|access[._]key$|account[._]key(\.|$)|keystore\.key$|key\.pem$"
    r"|private\.key$|token$|fixed\.token\.|user\.info$",
    re.IGNORECASE,
)
_NAMES_A_PLACE = re.compile(r"(file|location|path|provider|class|url|uri)$", re.IGNORECASE)
_FROM_ENV = re.compile(r"^\$\{[A-Za-z_][A-Za-z0-9_]*\}$")
_LOGIN_IN_URL = re.compile(r"://[^/\s:@]*:(?!\$\{)[^/\s@]+@")
_JAAS_SECRET = re.compile(r"(?:password|secret|token)[A-Za-z]*\s*=\s*(\"[^\"]*\"|'[^']*'|[^\s;]+)", re.IGNORECASE)


def redact(properties: dict[str, str]) -> dict[str, str]:
    """Properties fit for logs: values of secret-looking keys replaced."""
    return {k: "***" if SECRET_KEYS.search(k) else v for k, v in properties.items()}


def plain_secrets(raw: Mapping[str, Any]) -> Iterator[ConfigError]:
    """Of cdc.yaml as it was read: an error for each secret that is written out, without its value."""
    yield from _properties(raw.get("kafka"), "kafka")
    yield from _properties(_section(raw.get("spark")).get("conf"), "spark.conf")
    token = _section(raw.get("catalog")).get("token")
    if token is not None and not _comes_from_env(token):
        yield _refused("catalog.token")
    yield from _properties(raw.get("storage"), "storage")
    for part in ("sources", "bridges"):
        sections = raw.get(part)
        for i, section in enumerate(sections if isinstance(sections, list) else []):
            yield from _properties(_section(section).get("kafka"), f"{part}[{i}].kafka")
            password = _section(section).get("password") if part == "bridges" else None
            if password is not None and not _comes_from_env(password):
                yield _refused(f"{part}[{i}].password")


def _section(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _properties(properties: Any, place: str) -> Iterator[ConfigError]:
    for key, value in _section(properties).items():
        if value is None or not str(value).strip() or isinstance(value, bool | list | Mapping):
            continue  # empty, or refused by the model
        if _is_plain_secret(str(key), value):
            yield _refused(f"{place}.{key}")


def _is_plain_secret(key: str, value: Any) -> bool:
    if "jaas" in key.lower() and isinstance(value, str):
        hidden = [found.strip("\"'") for found in _JAAS_SECRET.findall(value)]
        return not _comes_from_env(value) and not (hidden and all(map(_comes_from_env, hidden)))
    if _MUST_BE_FROM_ENV.search(key) and not _NAMES_A_PLACE.search(key):
        return not _comes_from_env(value)
    return isinstance(value, str) and bool(_LOGIN_IN_URL.search(value))


def _comes_from_env(value: Any) -> bool:
    return isinstance(value, str) and bool(_FROM_ENV.match(value))


def _refused(key: str) -> ConfigError:
    return ConfigError(key, "is a secret and must come from the environment", ["${ENV_VAR}"])
