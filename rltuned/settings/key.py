"""What a table of keys is made of: documented fields, no unknown key, no silent conversion."""

from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

_LONGEST: Final = 4_095
_LONGEST_NAME: Final = 255
_KERNEL: Final = (("dev",), ("proc",), ("sys",))


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
    """The daemon and Slurm's commands run in /, so nothing is relative to a folder of a user's."""
    if path is None:
        return None
    if not path.is_absolute():
        raise ValueError(f"must be an absolute path: {path} depends on where rltuned starts")
    if ".." in path.parts:
        raise ValueError("must be without ..")
    return path


def _own_folder(path: Path | None) -> Path | None:
    """Refuse what cannot be a folder of rltuned's own. Nothing is looked at: restore must read the
    settings whatever lies there.
    """
    if path is None:
        return None
    is_kernels = path.parts[1:2] in _KERNEL and path.parts[2:3] != ("shm",)
    if path == Path("/") or is_kernels:
        raise ValueError(f"{path} cannot be a folder of rltuned's own")
    return path


def _a_folder_name(name: str) -> str:
    if name in {".", ".."} or not is_file_name(name):
        raise ValueError("must be the name of one folder, without /")
    return name


def _not_empty(value: Any) -> Any:
    if value == "":
        raise ValueError("a path cannot be empty")
    return value


def _a_name(name: str) -> str:
    """Refuse what no name of Slurm can be: it would protect no job, without a sign."""
    if not name.isprintable() or name != name.strip() or "," in name:
        raise ValueError("must be one name, without commas and without blanks around it")
    return name


_CHECKS = (
    Field(strict=False),
    AfterValidator(_possible),
    AfterValidator(_from_the_root),
    BeforeValidator(_not_empty),
)
FilePath = Annotated[Path, *_CHECKS]
OptionalPath = Annotated[Path | None, *_CHECKS]
FolderPath = Annotated[FilePath, AfterValidator(_own_folder)]
OptionalFolder = Annotated[OptionalPath, AfterValidator(_own_folder)]
FolderName = Annotated[str, AfterValidator(_a_folder_name)]
OptionalName = Annotated[str, AfterValidator(_a_name)]
"""Empty = none."""
Names = list[Annotated[str, Field(min_length=1), AfterValidator(_a_name)]]


class Keys(BaseModel):
    """A table of the file: no unknown key, no silent conversion. Its docstring describes it."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, validate_default=True, allow_inf_nan=False
    )
