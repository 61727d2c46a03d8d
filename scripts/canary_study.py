"""How often the canary's statistic is wrong, and how soon it is right: the table of ADR 0010.

python -m scripts.canary_study --trials 250 --blocks 200 --seed 1
"""

import argparse

import numpy as np

from rltuned.core.evidence import Evidence, block_jobs, worse_share
from rltuned.core.ladder import Ladder

MARGIN = Ladder().margin
FRACTIONS = (0.1, 0.5)
HARMS = (1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 10.0)


def alarm_at(
    rng: np.random.Generator, blocks: int, *, fraction: float, harm: float, phi: float = 0.98
) -> int | None:
    """The block at which a trial of a bursty, heavy-tailed queue rings; None = it does not.

    Waits are log-normal around a level that wanders (an AR(1) with correlation phi from start to
    start), so jobs that start together have much in common. Treated waits are `harm` times as long.
    """
    size = block_jobs(fraction)
    noise = rng.normal(size=(blocks * size, 2))
    level = np.empty(len(noise))
    level[0] = noise[0, 0]
    for i in range(1, len(noise)):
        level[i] = phi * level[i - 1] + 0.3 * noise[i, 0]
    treated = rng.random(len(noise)) < fraction
    waits = np.exp(level + 1.5 * noise[:, 1]) * np.where(treated, harm, 1.0)
    evidence = Evidence()
    for block in range(blocks):
        part = slice(block * size, (block + 1) * size)
        ours, theirs = waits[part][treated[part]], waits[part][~treated[part]]
        share = worse_share(ours.tolist(), theirs.tolist())
        if share is not None:
            evidence = evidence.after(share, MARGIN)
        if evidence.is_enough:
            return block + 1
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=250)
    parser.add_argument("--blocks", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    print("| fraction | treated waits | alarms | blocks until the alarm, median | jobs |")
    print("|---|---|---|---|---|")
    for fraction in FRACTIONS:
        for harm in HARMS:
            rng = np.random.default_rng(asked.seed)
            found = [
                alarm_at(rng, asked.blocks, fraction=fraction, harm=harm)
                for _ in range(asked.trials)
            ]
            rang = [block for block in found if block is not None]
            median = float(np.median(rang)) if rang else None
            jobs = "" if median is None else f"{median * block_jobs(fraction):.0f}"
            print(
                f"| {fraction} | x {harm:g} | {len(rang)} of {asked.trials} | "
                f"{'' if median is None else f'{median:.0f}'} | {jobs} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
