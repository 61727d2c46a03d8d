"""Commands in this process, with their own errors raised."""

from collections.abc import Mapping

from typer.testing import CliRunner, Result

from rltuned.cli import app
from rltuned.errors import RltunedError


def run(*args: str, env: Mapping[str, str] | None = None) -> Result:
    """One command; its own errors surface as exceptions, as main() sees them."""
    result = CliRunner().invoke(app, args, env=env)
    if isinstance(result.exception, RltunedError):
        raise result.exception
    return result
