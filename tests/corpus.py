"""Odd submissions and updates, of which each must cost no more than the job that it is about.

The table of tests/faults/test_corpus.py (a sample) and `make test-corpus` (all of it, on every
release). Each entry is one thing that a user or an administrator may do. Slurm refuses some of
them, another set on every release: a refusal is no fault, and is counted.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rltuned.journal.journal import Journal
from tests.configs import write_settings
from tests.lab import SlurmLab
from tests.programs import rltuned

HUGE = (0, 1, 2, 1000, 65_534, 65_535, 2_147_483_647, 4_294_967_293, -1)
TIMES = (
    "0", "1", "527040", "525601", "1000000", "35791394", "4294967293", "UNLIMITED", "INFINITE",
    "0:01", "0-0", "365-0", "366-0", "4000-0:0:0", "1-23:59:59",
)  # fmt: skip
AMOUNTS = ("0", "1", "1K", "1500M", "62.5G", "1T", "1P", "4294967295", "18446744073709551615")
GRES = (
    "gpu", "gpu:0", "gpu:1", "gpu:p100", "gpu:p100:4", "gpu:p100:1,gpu:k80:1", "gpu:4294967295",
    "gpu:none", "gpu:p100:2K", "none", "NONE", "shard:1", "mps:100", "gpu:P100:1", "gpu:p100:0",
)  # fmt: skip
NODES = ("1", "1-4", "2-2", "1-1000", "3-1", "0", "1-", "5", "4294967293", "1,3", "1-4:2")
MOMENTS = (
    "now+1", "now+7days", "now+3650days", "2030-01-01", "1970-01-01T00:00:01", "midnight", "noon",
    "tomorrow", "2038-01-19T03:14:08", "2106-02-07T06:28:15",
)  # fmt: skip
ARRAYS = (
    "0", "0-3", "0-1000%1", "1,5,7-9:2,100", "0-999:7", "5-4", "1000", "0-3%0", "0-3%1000000",
    "0-999,1000", "3,1,2", "0-0", ",".join(str(i) for i in range(0, 1000, 2)),
)  # fmt: skip
ODD_TEXT = (
    "", " ", "a b", "x" * 1000, "|", "\x1f", "\x1e", "\t", "\n1\x1f2", "'\"`$(id)", "ä€🙂",
    "%A%j%x", "(null)", "N/A", "INVALID", "\x1b[31m", "=", ",", "a,b", "\\x1f", "-1",
)  # fmt: skip
DEPENDENCIES = (
    "singleton", "after:{job}", "afterok:{job}", "afterany:{job}?afterok:{job}", "afternotok:{job}",
    "afterok:999999999", "after:{job}+5", "aftercorr:{job}", "expand:{job}",
    "afterok:{job},singleton", "afterburstbuffer:{job}",
)  # fmt: skip


_OPTIONS: tuple[tuple[str, tuple[object, ...]], ...] = (
    ("--time", TIMES),
    ("--time-min", ("1", "0", "1000000", "UNLIMITED")),
    ("--nodes", NODES),
    ("--gres", GRES),
    ("--ntasks", HUGE),
    ("--cpus-per-task", (1, 2, 16, 17, 65_535)),
    ("--ntasks-per-node", (0, 1, 16, 1000)),
    ("--cpus-per-gpu", (1, 100)),
    ("--mincpus", (1, 16, 100_000)),
    ("--nice", (0, 1, -1, 580, 2_147_483_645, -2_147_483_645, 10_000_000_000)),
    ("--priority", (0, 1, 2, 100_000, 4_294_967_293, "TOP")),
    ("--begin", MOMENTS),
    ("--array", ARRAYS),
    ("--dependency", DEPENDENCIES),
    (
        "--constraint",
        ("pascal", "pascal|kepler", "pascal&kepler", "[pascal|kepler]", "pascal*2", "(pascal)"),
    ),
    ("--partition", ("gpu,short", "sla,gpu", "short", "closed", "whole", "nothing")),
    ("--licenses", ("matlab:2", "matlab:2,foo:1", "matlab:99", "none", "foo")),
    ("--nodelist", ("p1", "p[1-2]", "p1,k1", "m1,m1", "nowhere", "p[1-2],k[1-2],m1")),
    ("--exclude", ("p1", "p[1-2]", "p[1-2],k[1-2],m1", "nowhere")),
    ("--distribution", ("block", "cyclic", "plane=4", "arbitrary", "block:cyclic")),
    ("--core-spec", (0, 1, 65_000)),
    ("--thread-spec", (0, 1)),
    ("--extra-node-info", ("1", "1:1:1", "*:*:*", "2:8:1")),
    ("--hint", ("compute_bound", "memory_bound", "nomultithread")),
    ("--exclusive", ("user", "mcs", "topo")),
    ("--signal", ("USR1@0", "B:9@65535", "R:USR1@60")),
    ("--switches", ("1", "4@100:00", "65535")),
    ("--mail-type", ("ALL", "NONE")),
    ("--reservation", ("none", "nothing")),
    ("--qos", ("normal", "nothing")),
    ("--delay-boot", ("0", "100000")),
    ("--cpu-freq", ("low", "high", "1000000")),
    ("--gpus-per-socket", ("1", "p100:1")),
)
_TOGETHER = (
    ("--exclusive",), ("--oversubscribe",), ("--contiguous", "-N2"), ("--overcommit", "-n40"),
    ("--hold",), ("--requeue",), ("--no-requeue",), ("--spread-job", "-N2"), ("--use-min-nodes",),
    ("--kill-on-invalid-dep=yes", "--dependency=afterok:999999999"), ("--uid=65534",),
    ("--mem=0", "--exclusive"), ("-n1", "-N1", "-c1", "--threads-per-core=1"),
    ("--begin=now+7days", "--dependency=singleton"), ("--array=0-3", "--hold"),
    ("--gpus-per-socket=1", "--sockets-per-node=1"),
    ("-N2", "--gres=gpu:1"), ("-N2", "--gpus=3"), ("--gres=gpu:1", "--mem-per-gpu=1"),
)  # fmt: skip


@dataclass(frozen=True)
class Odd:
    """One entry.

    Attributes:
        kind: submit = sbatch with these words; update = an ordinary pending job is changed by
            them; node, partition = p2, or the partition `short`, is changed; `undo` restores it.
        words: for sbatch, or after `scontrol update ...`; "{job}" is another job's id.
        undo: words for scontrol that undo a change of a node or a partition.
    """

    kind: str
    words: tuple[str, ...]
    undo: tuple[str, ...] = ()


def corpus() -> tuple[Odd, ...]:
    """Every entry, in an order that does not change."""
    return (*_submissions(), *_updates(), *_hardware())


def sample(count: int) -> tuple[Odd, ...]:
    """So many of them: all that once froze rltuned, the others evenly from the whole table."""
    entries = corpus()
    bad = [e for e in entries if e.words in _FROZE]
    step = len(entries) // max(1, count - len(bad))
    return tuple([*bad, *(e for e in entries[::step] if e not in bad)][:count])


_FROZE = {
    ("--time=1000000",),
    ("Gres=",),
    ("PartitionName=gpu", "Nodes=p1,k[1-2],m1"),
    ("-N1-4", "--gpus-per-node=4"),
    ("--deadline=now+5minutes", "--time=1"),
    ("--begin=now+7days",),
}


def _each(option: str, values: tuple[object, ...]) -> Iterator[Odd]:
    return (Odd("submit", (f"{option}={value}",)) for value in values)


def _submissions() -> Iterator[Odd]:
    for option, values in _OPTIONS:
        yield from _each(option, values)
    for nodes in ("1-4", "2-3", "1-2"):
        yield Odd("submit", (f"-N{nodes}", "--gpus-per-node=4"))
        yield Odd("submit", (f"-N{nodes}", "--gres=gpu:1", "--ntasks-per-node=2"))
        yield Odd("submit", (f"-N{nodes}", "--exclusive"))
    for option in ("--gpus", "--gpus-per-node", "--gpus-per-task"):
        yield from _each(option, ("0", "1", "p100:2", "k80:1,p100:1", "999999"))
    for value in AMOUNTS:
        yield from (Odd("submit", (f"{o}={value}",)) for o in ("--mem", "--mem-per-cpu", "--tmp"))
        yield Odd("submit", (f"--mem-per-gpu={value}", "--gpus=1"))
    for moment in ("now+5minutes", "now+1", "now+3650days", "2038-01-19T03:14:08", "midnight"):
        yield Odd("submit", (f"--deadline={moment}", "--time=1"))
    for text in ODD_TEXT:
        yield from (
            Odd("submit", (f"{o}={text}",)) for o in ("--account", "--job-name", "--comment")
        )
    yield from (Odd("submit", words) for words in _TOGETHER)


def _updates() -> Iterator[Odd]:
    changes: tuple[tuple[str, tuple[object, ...]], ...] = (
        ("TimeLimit", ("1000000", "UNLIMITED", "0", "1", "+10", "-5", "365-0", "366-0")),
        ("Gres", ("", "gpu:p100:4", "gpu:0", "none", "gpu:none:1")),
        ("TresPerNode", ("", "gres/gpu=1", "gres:gpu:p100:1")),
        ("NumNodes", ("1", "1-4", "0", "1000", "2-2")),
        ("NumTasks", ("1", "0", "65535")),
        ("NumCPUs", ("1", "1-8", "0", "100000")),
        ("MinCPUsNode", ("0", "1", "16", "60000")),
        ("MinMemoryNode", ("0", "1", "1T", "18446744073709551615")),
        ("MinMemoryCPU", ("0", "1", "1T")),
        ("MinTmpDiskNode", ("0", "1000000")),
        ("Features", ("", "pascal", "pascal|kepler", "nothing")),
        ("Partition", ("gpu", "short", "sla", "gpu,short", "closed", "nothing")),
        ("ReqNodeList", ("", "p1", "p[1-2]", "nowhere")),
        ("ExcNodeList", ("", "p1", "p[1-2],k[1-2],m1", "nowhere")),
        ("Dependency", ("", "singleton", "afterok:{job}", "afterok:999999999")),
        ("StartTime", ("now", "now+7days", "2030-01-01", "1970-01-01T00:00:01")),
        ("EligibleTime", ("now", "now+7days")),
        ("Deadline", ("now+5minutes", "now+3650days", "2038-01-19T03:14:08")),
        ("Nice", ("0", "1", "-1", "2147483645", "-2147483645")),
        ("Priority", ("0", "1", "4294967293")),
        ("SiteFactor", ("0", "7", "-7", "2147483645", "-2147483645")),
        ("OverSubscribe", ("yes", "no", "0", "1")),
        ("Contiguous", ("yes", "no")),
        ("Licenses", ("", "matlab:2", "matlab:99")),
        ("Account", ("", "a b", "(null)", "x" * 200)),
        ("JobName", ("", "a b", "\x1b[31m", "\x1f")),
        ("Comment", ("", "|", "x" * 500)),
        ("AdminComment", ("", "\n")),
        ("CoreSpec", ("0", "1")),
        ("ThreadSpec", ("0", "1")),
        ("ReservationName", ("", "nothing")),
        ("QOS", ("", "nothing")),
        ("Requeue", ("0", "1")),
        ("UserID", ("65534", "4294967294")),
        ("ArrayTaskThrottle", ("0", "1", "65535")),
        ("BurstBuffer", ("",)),
        ("Switches", ("1@10", "65535")),
        ("DelayBoot", ("0", "1000")),
    )
    for key, values in changes:
        yield from (Odd("update", (f"{key}={value}",)) for value in values)
    for verb in ("hold", "uhold", "suspend", "requeue", "requeuehold", "top"):
        yield Odd("update", (verb, "{job}"))


def _hardware() -> Iterator[Odd]:
    for state in (
        "DRAIN", "DOWN", "FAIL", "FUTURE", "NORESP", "UNDRAIN", "POWER_DOWN", "POWER_UP",
        "CANCEL_REBOOT",
    ):  # fmt: skip
        remedy = ("NodeName=p2", "State=RESUME")
        yield Odd("node", ("NodeName=p2", f"State={state}", "Reason=corpus"), remedy)
    for word in (
        "Features=", "Features=a,b", "ActiveFeatures=", "Weight=65535", "Weight=0", "Comment=\x1f",
        "Comment=", "Extra=\x1e", "Reason=", "CpuBind=none", "Gres=", "Gres=gpu:p100:2",
        "Gres=gpu:p100:4",
    ):  # fmt: skip
        yield Odd("node", ("NodeName=p2", word), ("NodeName=p2", "Features=pascal"))
    for key, value, old in (
        ("State", "DOWN", "UP"), ("State", "DRAIN", "UP"), ("State", "INACTIVE", "UP"),
        ("MaxTime", "1", "10"), ("MaxTime", "UNLIMITED", "10"), ("MaxTime", "1000000", "10"),
        ("DefaultTime", "1000000", "5"), ("DefaultTime", "NONE", "5"),
        ("MaxNodes", "0", "UNLIMITED"),
        ("MinNodes", "2", "0"), ("OverSubscribe", "FORCE:4", "NO"),
        ("OverSubscribe", "YES:2", "NO"),
        ("OverSubscribe", "EXCLUSIVE", "NO"), ("PriorityTier", "65533", "1"),
        ("PriorityJobFactor", "65533", "30"), ("RootOnly", "YES", "NO"), ("Hidden", "YES", "NO"),
        ("Nodes", "p1", "p[1-2]"), ("GraceTime", "4294967293", "0"),
        ("MaxCPUsPerNode", "1", "UNLIMITED"),
        ("DefMemPerCPU", "1", "500"), ("MaxMemPerNode", "1", "UNLIMITED"),
    ):  # fmt: skip
        name = "PartitionName=short"
        yield Odd("partition", (name, f"{key}={value}"), (name, f"{key}={old}"))
    # a job runs on p2 meanwhile: squeue shows a node that sinfo does not
    whole = ("PartitionName=gpu", "Nodes=ALL")
    yield Odd("partition", ("PartitionName=gpu", "Nodes=p1,k[1-2],m1"), whole)


def put(lab: SlurmLab, odd: Odd, job: int, plain: Callable[[], int]) -> bool:
    """Do one of them; whether Slurm took it.

    Args:
        lab: where.
        odd: what.
        job: id of an ordinary job for "{job}".
        plain: submits an ordinary pending job; its id.
    """
    words = tuple(word.replace("{job}", str(job)) for word in odd.words)
    if any("\0" in word for word in words):
        return False
    if odd.kind == "submit":
        argv = ["sbatch", "--output=/dev/null", "--chdir=/", *words, "--wrap=sleep 600"]
    elif odd.kind == "update" and "=" not in odd.words[0]:
        argv = ["scontrol", words[0], str(plain())]
    elif odd.kind == "update":
        argv = ["scontrol", "update", f"JobId={plain()}", *words]
    else:
        argv = ["scontrol", "update", *words]
    return "error" not in lab.run(*argv, check=False).lower()


FULL = ("--gres=gpu:p100:4", "-n16", "-N1")


@dataclass(frozen=True)
class Batch:
    """What came of some entries. wrong: what must not be, in words."""

    taken: int
    refused: int
    unreadable: tuple[str, ...]
    wrong: tuple[str, ...]


def play(lab: SlurmLab, folder: Path, entries: Sequence[Odd]) -> Batch:
    """Do these, let rltuned look and cycle twice, restore, repair nodes and partitions, empty the
    queue. Numbers of others that it has not looked at before would keep it from writing.
    """
    state = folder / "state"
    state.mkdir(mode=0o700, exist_ok=True)
    log = {"format": "json"}
    config = write_settings(folder / "rltuned.toml", lab.conf, state, log=log)
    first = [lab.sbatch(*FULL, f"-w{node}", "--time=2:00:00") for node in ("p1", "p2")]
    lab.wait_for(lambda: all(lab.state(job) == "R" for job in first), "the nodes are full")
    jobs = [lab.sbatch(*FULL, f"--time={minutes}") for minutes in (90, 60, 30)]
    taken = [put(lab, odd, jobs[0], lambda: lab.sbatch(*FULL)) for odd in entries]
    lab.wait_for(lambda: lab.state(jobs[0]) == "PD", "a job waits")
    rltuned("run", "--stage", "observe", "--once", config=config, code=0)
    ran = rltuned("run", "--live", "--cycles", "2", "--interval", "1", config=config)
    back = rltuned("restore", "--all", config=config)
    wrong = [line for line in ran.stderr.splitlines() if "cycle_skipped" in line]
    wrong += [f"run: {ran.stderr[-2000:]}"] if ran.stderr.count('"event": "cycle"') < 2 else []
    wrong += ["nothing was written"] if '"applied": ' not in ran.stderr else []
    wrong += [f"restore: {back.stdout[-2000:]}{back.stderr[-2000:]}"] if back.returncode else []
    with closing(Journal(folder / "state")) as journal:
        pending = set(map(int, lab.run("squeue", "-h", "-a", "-tPD", "-o", "%A").split()))
        kept = sorted(key[0] for key in journal.owned("rltlab") if key[0] in pending)
    wrong += [f"not restored: {kept}"] if kept else []
    for odd in entries:
        if odd.undo:
            lab.run("scontrol", "update", *odd.undo, check=False)
    lab.clear()
    odd_rows = [line for line in ran.stderr.splitlines() if '"event": "unreadable"' in line]
    return Batch(sum(taken), len(taken) - sum(taken), tuple(odd_rows), tuple(wrong))
