"""Commands in this process, with their own errors raised."""

from typer.testing import CliRunner, Result

from rltuned.cli import app
from rltuned.errors import RltunedError


def run(*args: str) -> Result:
    """One command; its own errors surface as exceptions, as main() sees them."""
    result = CliRunner().invoke(app, args)
    if isinstance(result.exception, RltunedError):
        raise result.exception
    return result
