"""One TOML file, checked key by key, handed out as the small frozen dataclasses of each floor."""

from typing import TYPE_CHECKING, Any

from rltuned.settings.source import DEFAULT_PATH, Flag, Loaded, from_flags, load

if TYPE_CHECKING:
    from rltuned.settings.keys import Settings

__all__ = ["DEFAULT_PATH", "Flag", "Loaded", "Settings", "from_flags", "load"]


def __getattr__(name: str) -> Any:
    """Settings are imported when they are used: they import numpy, which `restore` does without."""
    if name != "Settings":
        raise AttributeError(name)
    from rltuned.settings.keys import Settings  # noqa: PLC0415

    return Settings
