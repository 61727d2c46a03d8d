"""A queue on the real Slurm, its settings, and what squeue shows of it."""

from collections.abc import Sequence

from tests.lab import SlurmLab

QUEUE = "JobID:|,PriorityLong:|,Nice:|,StateCompact:|,Partition:|,OverSubscribe:|"
FULL = ("--gres=gpu:p100:4", "-n16", "-N1")


def queue(slurm: SlurmLab) -> dict[int, list[str]]:
    """What squeue shows of every job: priority, nice, state, partition, oversubscribe."""
    lines = slurm.run("squeue", "-h", "-a", "-O", QUEUE).splitlines()
    rows = [[part.strip() for part in line.split("|")] for line in lines if line.strip()]
    return {int(row[0]): row[1:] for row in rows}


def priority(slurm: SlurmLab, job_id: int) -> int:
    return int(queue(slurm)[job_id][0])


def waiting(
    slurm: SlurmLab, nices: Sequence[int] = (5, 5, 5), minutes: Sequence[int] = (300, 200, 100)
) -> tuple[int, int, int]:
    """Both p nodes are busy; a long, a middling and a short job wait, in this order."""
    for node in ("p1", "p2"):
        blocker = slurm.sbatch(*FULL, f"-w{node}", "--time=2:00:00")
        slurm.wait_for(lambda b=blocker: slurm.state(b) == "R", "a blocker runs")  # type: ignore[misc]
    jobs = [
        slurm.sbatch(*FULL, f"--time={m}", f"--nice={nice}", f"-J t{m}")
        for m, nice in zip(minutes, nices, strict=True)
    ]
    slurm.wait_for(lambda: all(slurm.state(j) == "PD" for j in jobs), "three jobs wait")
    # the scheduler's next pass makes a job eligible, and only then sprio shows it
    shown = {str(j) for j in jobs}
    slurm.wait_for(
        lambda: shown <= {*slurm.run("sprio", "-h", "-o", "%i").split()}, "sprio shows them"
    )
    long, middle, short = jobs
    return long, middle, short
