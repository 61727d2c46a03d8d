"""Designs of other papers, and bounds: for comparisons, not for a cluster.

python -m scripts.studies train|play ...     # see learning.py
python -m scripts.studies bound results.json --trace T --cluster C
"""

import argparse
from collections.abc import Sequence

from scripts.studies import bound, learning


def main(given: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m scripts.studies", description=__doc__)
    commands = parser.add_subparsers(required=True)
    learning.add_commands(commands)
    bound.add_command(commands)
    asked = parser.parse_args(given)
    asked.run(asked)


if __name__ == "__main__":
    main()
