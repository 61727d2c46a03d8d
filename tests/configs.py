"""Settings files for daemons of tests: quick cycles, short jobs first, no port that is known."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

QUICK: Final[Mapping[str, Mapping[str, Any]]] = {
    "daemon": {"interval_s": 1},
    "policy": {"name": "sjf"},
    "order": {"own": 0.3, "share": 0.0},
    "scope": {"min_age_s": 0},
    "limits": {"hysteresis": 0.0},
}


def settings_file(folder: Path, text: str = "") -> Path:
    """A file of that name with this text."""
    path = folder / "rltuned.toml"
    path.write_text(text)
    return path


def write_settings(
    path: Path, conf: Path | str, state: Path | None = None, **sections: Mapping[str, Any]
) -> Path:
    """A file that only its user may read; state and pause file beside it, if nothing else is said.

    sections: go over those of QUICK, key by key; `sla` is one class.
    """
    folder = path.parent
    places = {"state_dir": str(state or folder), "pause_file": str(folder / "PAUSE")}
    here = {"daemon": {**QUICK["daemon"], **places}, "slurm": {"conf": str(conf)}}
    known = {**QUICK, **here, **{name: {} for name in sections if name not in {*QUICK, *here}}}
    lines = []
    for name, keys in {**known, "http": {"port": 0}}.items():  # tests add keys to the last one
        lines.append("[[sla]]" if name == "sla" else f"[{name}]")
        both = {**keys, **sections.get(name, {})}
        lines += [f"{key} = {json.dumps(value)}" for key, value in both.items()]
    path.write_text("\n".join(lines) + "\n")
    path.chmod(0o600)
    return path
