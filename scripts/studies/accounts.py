"""What several accounts of one person do to others: decoys, and the same work split over accounts.

    python -m scripts.studies.accounts

Helios Venus (4,000 jobs of 67 users, load 0.9) in the daemon's cycles of 60 s, with the default
order. `decoys`: each account keeps COUNT jobs in the queue that ask for the whole cluster for 30
days and end within a second if they ever start. `tiny`: each ends COUNT x 10 jobs of one GPU that
take a minute, submitted at once every day. Figures are of the honest jobs alone.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from rltuned.policies.baselines import BASELINES
from rltuned.policies.predictor import load_predictor
from rltuned.policies.shelf import shipped_predictor
from rltuned.sim.cluster import Cluster
from rltuned.sim.trace import TraceJob
from scripts.studies import plays
from scripts.studies.delays import trace_of

ACCOUNTS = (0, 1, 2, 10)
COUNT = 20
DAY = 86_400.0


def with_accounts(
    cluster: Cluster, jobs: Sequence[TraceJob], what: str, accounts: int
) -> list[TraceJob]:
    """The jobs and those of the accounts, by submission."""
    days = int(jobs[-1].submit_s // DAY) + 1
    found = list(jobs)
    for number in range(accounts):
        name, partition = f"{what}-{number}", jobs[0].partition
        for day in range(days if what == "tiny" else 1):
            gpus, run_s, limit_s, many = 1, 60.0, 60.0, 10 * COUNT
            if what == "decoys":
                gpus, run_s, limit_s, many = cluster.gpus, 1.0, 30 * DAY, COUNT
            for n in range(many):
                one = TraceJob(f"{name}-{day}-{n}", day * DAY + number, run_s, gpus, limit_s)
                found.append(replace(one, user=name, partition=partition))
    return sorted(found, key=lambda job: job.submit_s)


def main() -> None:
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    cluster, trace = trace_of("helios-venus", 0.9, 1, "own")
    predictor = load_predictor(shipped_predictor())
    plays.head("what", "accounts", "order", "mean wait, h", "99%, h", "longest, h")
    for what, accounts in product(("decoys", "tiny"), ACCOUNTS):
        jobs = with_accounts(cluster, trace.jobs, what, accounts)
        honest = np.array([not job.job_id.startswith(what) for job in jobs])
        for order in ("fcfs", "delay"):
            found = plays.play(cluster, jobs, BASELINES[order], predictor=predictor)
            hours = found.wait_s[honest] / 3_600.0
            row = [f"{h:.1f}" for h in (hours.mean(), np.quantile(hours, 0.99), hours.max())]
            print(plays.row_of([what, accounts, order, *row]), flush=True)


if __name__ == "__main__":
    main()
