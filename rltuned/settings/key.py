"""What a table of keys is made of: documented fields, no unknown key, no silent conversion."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field


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


def _from_the_root(path: Path | None) -> Path | None:
    if path is not None and not path.is_absolute():
        raise ValueError("must be an absolute path, for Slurm's commands run in /")
    return path


def _not_empty(value: Any) -> Any:
    if value == "":
        raise ValueError("a path cannot be empty")
    return value


def _a_name(name: str) -> str:
    """Refuse what no name of Slurm can be: it would protect nobody and nobody would notice."""
    if not name.isprintable() or name != name.strip() or "," in name:
        raise ValueError("must be one name, without commas and without blanks around it")
    return name


FilePath = Annotated[
    Path, Field(strict=False), AfterValidator(_no_nul), BeforeValidator(_not_empty)
]
OptionalPath = Annotated[
    Path | None, Field(strict=False), AfterValidator(_no_nul), BeforeValidator(_not_empty)
]
AbsolutePath = Annotated[OptionalPath, AfterValidator(_from_the_root)]
Names = list[Annotated[str, Field(min_length=1), AfterValidator(_a_name)]]


class Keys(BaseModel):
    """A table of the file: no unknown key, no silent conversion."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, validate_default=True, allow_inf_nan=False
    )
