"""The pictures of the README and the docs, from the shipped code and settings (`make pictures`).

    docs/img/demo.svg       what `make demo` prints
    docs/img/status-*.png   the status page of a daemon at stage full, after two simulated days
    docs/img/pictures.json  what they were made from; a test finds pictures that are out of date

Needs Chromium. Takes about two minutes.
"""

import hashlib
import io
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "img"
RECORD = IMAGES / "pictures.json"
WIDTH = 96
PORT = 9847
LOOKED_S = 90
SETTINGS = """
[policy]
name = "delay"
[scope]
sla_partitions = ["sla"]
[ladder]
stage = "full"
full_off_share = 0.25
"""
SHOTS = {"light": ("1240,1120", 1), "dark": ("1240,1120", 0), "narrow": ("500,2000", 1)}
"""Size, and the preferred scheme as Chromium numbers it."""
SOURCES = ("page.css", "status.css", "status.html", "macros.html", "frame.html")
"""Templates of the status page."""


def printed() -> str:
    """What the demo prints."""
    done = subprocess.run(
        [sys.executable, "-m", "scripts.tools.demo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.rstrip()


def draw_demo(text: str) -> None:
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    console.print(Text("$ make demo\n" + text))
    drawn = console.export_svg(title="rltuned, a day of jobs like those of Philly")
    # no fonts from elsewhere: a page that shows the picture must not call a third party
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)
    (IMAGES / "demo.svg").write_text(drawn)


def shoot() -> str:
    """Photograph the status page; returns the policy and the stage that it shows."""
    address = f"http://127.0.0.1:{PORT}/"
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "rltuned.toml")
        config.write_text(SETTINGS)
        config.chmod(0o600)
        given = ["--backend", "sim", "--live", "--no-show", "--speed", "2000", "--port", str(PORT)]
        daemon = subprocess.Popen(
            [sys.executable, "-m", "rltuned", "run", *given, "--config", str(config)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            time.sleep(LOOKED_S)
            with urllib.request.urlopen(f"{address}status.json") as answer:  # noqa: S310 - ours
                seen = json.load(answer)
            for name, (size, scheme) in SHOTS.items():
                subprocess.run(
                    [
                        "chromium", "--headless", "--no-sandbox", "--disable-gpu",
                        "--hide-scrollbars", f"--user-data-dir={folder}/{name}",
                        f"--blink-settings=preferredColorScheme={scheme}",
                        f"--window-size={size}", f"--screenshot={IMAGES / f'status-{name}.png'}",
                        address,
                    ],
                    check=True, capture_output=True, timeout=120,
                )  # fmt: skip
        finally:
            daemon.terminate()
            daemon.wait(60)
    return f"{seen['policy']}, stage {seen['stage']}"


def templates() -> str:
    """Digest of what the status page is made of."""
    folder = ROOT / "rltuned" / "report" / "templates"
    return hashlib.sha256(b"".join((folder / name).read_bytes() for name in SOURCES)).hexdigest()


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def main() -> int:
    text = printed()
    draw_demo(text)
    shown = shoot()
    pictures = [IMAGES / "demo.svg", *(IMAGES / f"status-{name}.png" for name in SHOTS)]
    record = {
        "demo": text.splitlines(),
        "status": shown,
        "templates": templates(),
        "sha256": {path.name: digest(path) for path in pictures},
    }
    RECORD.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
