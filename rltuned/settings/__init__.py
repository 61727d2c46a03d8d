"""One TOML file, checked key by key, handed out as the small frozen dataclasses of each floor."""

from rltuned.settings.keys import Settings
from rltuned.settings.source import DEFAULT_PATH, Flag, Loaded, from_flags, load

__all__ = ["DEFAULT_PATH", "Flag", "Loaded", "Settings", "from_flags", "load"]
