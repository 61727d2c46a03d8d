"""python -m scripts.studies NAME run|table|check: NAME is an experiment or a group of them."""

import argparse
import math
import sys

from scripts.studies import EXPERIMENTS, GROUPS, data_of
from scripts.studies.runner import perform


def main(given: list[str] | None = None) -> int:
    """Exit code 1: a figure differs from the stored one."""
    rows = [
        f"  {name:16}{one.about:46}{data_of(name)!s:32}{one.minutes:4} min"
        for name, one in EXPERIMENTS.items()
    ]
    parser = argparse.ArgumentParser(
        prog="python -m scripts.studies", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="\n".join([__doc__ or "", "", *rows, "", f"Groups: {', '.join(GROUPS)}."]),
    )  # fmt: skip
    parser.add_argument("names", nargs="+", metavar="NAME", help="of an experiment or a group")
    parser.add_argument("what", choices=("run", "table", "check", "draw"))
    parser.add_argument("--minutes", type=float, default=math.inf, help="then no run begins")
    parser.add_argument("--sample", type=int, help="rows that `check` plays again")
    parser.add_argument("--seed", type=int, default=1, help="of that draw")
    parser.add_argument("--only", help="rows that begin so: `Helios Venus, 0.9, own`")
    parser.add_argument("--seeds", type=int, default=1, help="paper: of every training")
    parser.add_argument("--json", action="store_true", help="paper table: the claims as JSON")
    asked = parser.parse_args(given)
    name = " ".join(asked.names)
    chosen = GROUPS.get(name, [name])
    if unknown := [one for one in chosen if one not in EXPERIMENTS]:
        parser.error(f"no experiment {unknown[0]!r}; there are: {', '.join([*EXPERIMENTS])}")
    is_paper = name == "paper" and asked.what == "table"
    if asked.what == "check":
        chosen = [one for one in chosen if not one.startswith("tune")]
    same = True
    for one in () if is_paper and asked.json else chosen:
        same &= perform(one, asked, parser)
    if is_paper:
        from scripts.studies.paper import claims  # noqa: PLC0415 - what it reads is large

        print(claims.as_json() if asked.json else claims.table())
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
