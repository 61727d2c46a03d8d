"""The pictures of the README and the docs, from the shipped code and settings (`make pictures`).

    docs/img/demo.svg       what `make demo` prints
    docs/img/status-*.png   the status page of a daemon at stage full, after a day of jobs like
                            those of Philly at load 1 (played_page.py)
    docs/img/pictures.json  what they were made from; a test finds pictures that are out of date

Needs Chromium. Takes about four minutes.
"""

import hashlib
import io
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

from scripts.tools.played_page import page_of, played

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "img"
RECORD = IMAGES / "pictures.json"
WIDTH = 96
HOURS = 26.0
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
    with played(HOURS) as (publisher, board), tempfile.TemporaryDirectory() as folder:
        seen, page = publisher.document(), Path(folder, "page.html")
        page.write_text(page_of(publisher, board))
        for name, (size, scheme) in SHOTS.items():
            subprocess.run(
                [
                    "chromium", "--headless", "--no-sandbox", "--disable-gpu",
                    "--hide-scrollbars", f"--user-data-dir={folder}/{name}",
                    f"--blink-settings=preferredColorScheme={scheme}",
                    f"--window-size={size}", f"--screenshot={IMAGES / f'status-{name}.png'}",
                    page.as_uri(),
                ],
                check=True, capture_output=True, timeout=120,
            )  # fmt: skip
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
