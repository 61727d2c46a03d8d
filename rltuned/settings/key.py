"""What a table of keys is made of: documented fields, no unknown key, no silent conversion."""

from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

_LONGEST: Final = 4_095
_LONGEST_NAME: Final = 255


def key(default: Any, unit: str = "", **bounds: Any) -> Any:
    """A key with a unit ("" = none) or bounds; the text below it is its description."""
    return Field(default=default, json_schema_extra={"unit": unit}, **bounds)


def is_file_name(name: str) -> bool:
    """Whether a file or folder can bear this name: one part of a path, as Linux has it."""
    length = len(name.encode(errors="surrogateescape"))
    return 0 < length <= _LONGEST_NAME and name == Path(name).name and "\0" not in name


def _possible(path: Path | None) -> Path | None:
    if path is None:
        return None
    if "\0" in str(path):
        raise ValueError("a path cannot hold a NUL character")
    parts = path.parts[1:] if path.is_absolute() else path.parts
    if not all(part == ".." or is_file_name(part) for part in parts) or len(str(path)) > _LONGEST:
        raise ValueError(f"a path has {_LONGEST} characters at most, and {_LONGEST_NAME} in a name")
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
    """Refuse what no name of Slurm can be: it would protect no job, without a sign."""
    if not name.isprintable() or name != name.strip() or "," in name:
        raise ValueError("must be one name, without commas and without blanks around it")
    return name


FilePath = Annotated[
    Path, Field(strict=False), AfterValidator(_possible), BeforeValidator(_not_empty)
]
OptionalPath = Annotated[
    Path | None, Field(strict=False), AfterValidator(_possible), BeforeValidator(_not_empty)
]
AbsolutePath = Annotated[OptionalPath, AfterValidator(_from_the_root)]
OptionalName = Annotated[str, AfterValidator(_a_name)]
"""Empty = none."""
Names = list[Annotated[str, Field(min_length=1), AfterValidator(_a_name)]]


class Keys(BaseModel):
    """A table of the file: no unknown key, no silent conversion. Its docstring describes it."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, validate_default=True, allow_inf_nan=False
    )
