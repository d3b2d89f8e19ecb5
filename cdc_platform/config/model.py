"""What all models of cdc.yaml share: strict keys, and client properties as Java writes them."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict


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


Properties = Annotated[dict[str, str], BeforeValidator(as_text)]
