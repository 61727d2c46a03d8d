"""A comparison on paper: JSON, table rows, one line per job."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rltuned.errors import TraceError
from rltuned.sim.cluster import Cluster
from rltuned.sim.metrics import METRICS, Schedule, Scores, bound, mean_fragmentation, score
from rltuned.sim.trace import number_text

CONTRACT = (*METRICS, "jobs", "decisions", "writes", "elapsed_s")
"""The keys of a policy in `rltuned simulate --json`."""
JOB_COLUMNS = ("policy", "window", "job_id", "submit_s", "start_s", "end_s", "nodes")


def scores_of(played: Mapping[str, Sequence[Schedule]], cluster_gpus: int) -> dict[str, Scores]:
    """The figures of every policy. Raises TraceError: not the same jobs, or one was dropped."""
    sets = {name: [s.job_ids for s in schedules] for name, schedules in played.items()}
    first = next(iter(sets.values()))
    if any(ids != first for ids in sets.values()):
        raise TraceError("the policies did not run the same jobs: nothing can be compared")
    try:
        return {name: score(schedules, cluster_gpus) for name, schedules in played.items()}
    except ValueError as error:
        raise TraceError(str(error)) from error


def document(
    played: Mapping[str, Sequence[Schedule]],
    cluster: Cluster,
    *,
    skipped: int = 0,
    details: bool = False,
) -> dict[str, object]:
    """What `rltuned simulate --json` prints; details add every figure and the lower bound."""
    scores = scores_of(played, cluster.gpus)
    figures = {n: {key: getattr(s, key) for key in CONTRACT} for n, s in scores.items()}
    if details:
        for name, schedules in played.items():
            scraps = mean_fragmentation(schedules, cluster)
            figures[name] = asdict(scores[name]) | {"fragmentation": scraps}
    whole: dict[str, object] = {"jobs": next(iter(scores.values())).jobs, "policies": figures}
    if skipped:
        whole["skipped_impossible"] = skipped
    if details:
        wait_s, jct_s = bound(next(iter(played.values())), cluster.gpus)
        whole["bound"] = {"wait_s": wait_s, "jct_s": jct_s}
    return whole


def write_jobs(played: Mapping[str, Sequence[Schedule]], path: Path) -> None:
    """One line per scored job of every policy and window. Raises TraceError."""
    try:
        with path.open("w", encoding="utf-8", newline="") as out:
            writer = csv.writer(out, lineterminator="\n")
            writer.writerow(JOB_COLUMNS)
            writer.writerows(_rows(played))
    except OSError as error:
        raise TraceError(f"{path}: cannot be written: {error.strerror}") from error


def _rows(played: Mapping[str, Sequence[Schedule]]) -> Iterator[tuple[object, ...]]:
    for policy, schedules in played.items():
        for window, s in enumerate(schedules):
            for i in range(s.warmup, len(s.job_ids)):
                times = (s.submit_s[i], s.start_s[i], s.end_s[i])
                texts = (number_text(float(t)) for t in times)
                yield policy, window, s.job_ids[i], *texts, s.nodes[i]
