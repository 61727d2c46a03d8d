"""Draw docs/img/demo.svg: what `make demo` prints (`python -m scripts.tools.picture`)."""

import io
import os
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[2]
TARGET = ROOT / "docs" / "img" / "demo.svg"
WIDTH = 118


def main() -> int:
    """Run one cycle of the demo and keep its table."""
    command = [sys.executable, "-m", "rltuned", "run", "--config", "deploy/demo.toml"]
    done = subprocess.run(
        [*command, "--backend", "sim", "--dry-run", "--once"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"FORCE_COLOR": "1", "COLUMNS": str(WIDTH), "TERM": "xterm-256color"},
    )
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    console.print(Text.from_ansi("$ make demo\n" + done.stdout.rstrip()))
    drawn = console.export_svg(title="rltuned, dry run on the built-in cluster")
    # no fonts from elsewhere: a page that shows the picture must not call a third party
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)
    TARGET.write_text(drawn)
    return 0


if __name__ == "__main__":
    sys.exit(main())
