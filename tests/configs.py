"""Settings files for daemons of tests: quick cycles, short jobs first, no port that is known."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

QUICK: Final[Mapping[str, Mapping[str, Any]]] = {
    "daemon": {"interval_s": 1},
    "policy": {"name": "sjf"},
    "order": {"stretch": 0.3},
    "scope": {"min_age_s": 0},
    "limits": {"hysteresis": 0.0},
    "http": {"port": 0},
}


def write_settings(
    path: Path, conf: Path | str, state: Path | None = None, **sections: Mapping[str, Any]
) -> Path:
    """A file that only its user may read; state and pause file beside it, if nothing else is said.

    sections: go over those of QUICK, key by key; `sla` is one class.
    """
    folder = path.parent
    places = {"state_dir": str(state or folder), "pause_file": str(folder / "PAUSE")}
    known = {**QUICK, "daemon": {**QUICK["daemon"], **places}, "slurm": {"conf": str(conf)}}
    lines = []
    for name in known | sections:
        lines.append("[[sla]]" if name == "sla" else f"[{name}]")
        keys = {**known.get(name, {}), **sections.get(name, {})}
        lines += [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    path.write_text("\n".join(lines) + "\n")
    path.chmod(0o600)
    return path
