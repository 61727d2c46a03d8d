"""What a table of keys is made of: documented fields, no unknown key, no silent conversion."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def key(default: Any, unit: str, why: str, **bounds: Any) -> Any:
    """A documented key: its default, its unit ("" = none) and one or two sentences of why."""
    return Field(default=default, description=why, json_schema_extra={"unit": unit}, **bounds)


def table(keys: Any, about: str) -> Any:
    """A documented table."""
    return Field(default_factory=keys, description=about)


def _no_nul(path: Path | None) -> Path | None:
    if path is not None and "\0" in str(path):
        raise ValueError("a path cannot hold a NUL character")
    return path


FilePath = Annotated[Path, Field(strict=False), AfterValidator(_no_nul)]
OptionalPath = Annotated[Path | None, Field(strict=False), AfterValidator(_no_nul)]
Names = list[Annotated[str, Field(min_length=1)]]


class Keys(BaseModel):
    """A table of the file: no unknown key, no silent conversion."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, validate_default=True)
