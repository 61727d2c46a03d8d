"""`rltuned version`."""

import platform
import sys

import typer

from rltuned import __version__

app = typer.Typer()


@app.command()
def version() -> None:
    """Print the version."""
    python = platform.python_version()
    sys.stdout.write(f"rltuned {__version__} (Python {python}, {platform.machine()})\n")
