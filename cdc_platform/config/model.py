"""What all models of cdc.yaml share: strict keys, names, and client properties as Java writes them."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


class Model(BaseModel):
    """A frozen part of cdc.yaml; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def as_text(value: Any) -> Any:
    """Property values as Java writes them; what is no scalar stays as it is, for the model to refuse."""
    if not isinstance(value, dict):
        return value
    return {str(k): _scalar_text(v) for k, v in value.items()}


def _scalar_text(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def checked_name(value: str) -> str:
    """A name, unchanged. Raises ValueError."""
    if not _NAME.fullmatch(value):
        raise ValueError("must start with a letter and hold only letters, digits, _ and - (at most 64)")
    return value


Name = Annotated[str, AfterValidator(checked_name)]
"""A name that may stand in paths, tables and on the command line."""

Properties = Annotated[dict[str, str], BeforeValidator(as_text)]
