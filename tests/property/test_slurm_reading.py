"""Damaged answers are refused or understood whole; nothing else ever comes out of the readers."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from rltuned.domain.cluster import Node
from rltuned.domain.jobs import PendingJob, RunningJob
from rltuned.domain.units import JobId
from rltuned.errors import SnapshotError
from rltuned.slurm.columns import FIELD, JOB_COLUMNS, NODE_COLUMNS
from rltuned.slurm.nodes import read_nodes
from rltuned.slurm.request import Requests
from rltuned.slurm.squeue import TWICE, JobsShown, QueueReader
from tests.programs import answer
from tests.recorded import DATA, MARKS, Recording

RECORDED = Recording(DATA / "22.05")
SQUEUE, SINFO = RECORDED.text("squeue"), RECORDED.text("sinfo")


def nodes(text: str) -> dict[str, Node]:
    rows = MARKS.rows(answer(text), len(NODE_COLUMNS))
    return {n.name: n for n in read_nodes(rows)[0]}


NODES = nodes(SINFO)


def queue(text: str, on: Mapping[str, Node] = NODES) -> JobsShown:
    rows = MARKS.rows(answer(text), len(JOB_COLUMNS))
    requests = Requests(frozenset({"whole"}), memory_counts=True)
    reader = QueueReader(requests=requests, nodes=on)
    return reader.read(dict(zip(JOB_COLUMNS, row, strict=True)) for row in rows)


WHOLE = queue(SQUEUE)
noise = st.text(alphabet=f"0123456789:,=|()[]%-NAgpusK\n{FIELD}\x1e#é\x00", max_size=12)
hurt = st.tuples(st.floats(0, 1), st.integers(0, 30), noise)


Wound = tuple[float, int, str]


def damage(text: str, wounds: list[Wound]) -> str:
    for place, length, put in wounds:
        start = int(place * len(text))
        text = text[:start] + put + text[start + length :]
    return text


@given(st.lists(hurt, min_size=1, max_size=4))
def test_damaged_queue(wounds: list[Wound]) -> None:
    try:
        found = queue(damage(SQUEUE, wounds))
    except SnapshotError:
        return
    assert all(j.priority >= 0 and j.partitions for j in found.pending)


@given(st.integers(2, 6), st.booleans())
def test_an_array_read_by_task_is_the_array_read_by_record(tasks: int, backwards: bool) -> None:
    end = MARKS.record + "\n"
    task, state = (JOB_COLUMNS.index(name) for name in ("arraytaskid", "statecompact"))
    header, *records = (record.split(FIELD) for record in SQUEUE.split(end)[:-1])
    one = next(r for r in records if r[task] != "N/A" and r[state] == "PD")

    def of(texts: Iterable[str]) -> tuple[PendingJob, ...]:
        rows = [[*one[:task], text, *one[task + 1 :]] for text in texts]
        return queue("".join(FIELD.join(row) + end for row in (header, *rows))).pending

    by_task = of(map(str, reversed(range(tasks)) if backwards else range(tasks)))
    assert by_task == of([f"0-{tasks - 1}"])
    assert [job.array and job.array.tasks for job in by_task] == [tasks]


@given(st.lists(hurt, min_size=1, max_size=4))
def test_damaged_nodes(wounds: list[Wound]) -> None:
    try:
        found = nodes(damage(SINFO, wounds))
    except SnapshotError:
        return
    assert all(n.free.fits_in(n.total) for n in found.values())


@given(st.integers(0, len(SQUEUE) - 1))
def test_no_cut_queue_is_ever_taken_for_a_shorter_one(length: int) -> None:
    try:
        queue(SQUEUE[:length])
    except SnapshotError:
        return
    # what is left ends exactly with a record: only a whole number of records can look whole,
    # and squeue's exit code tells of that case
    assert SQUEUE[:length].endswith(MARKS.record + "\n")


@given(st.permutations(range(len(SQUEUE.split(MARKS.record + "\n")) - 2)))
def test_order_of_the_records_does_not_matter(order: list[int]) -> None:
    header, *records = SQUEUE.split(MARKS.record + "\n")[:-1]
    shuffled = [header, *(records[i] for i in order)]
    found = queue("".join(r + MARKS.record + "\n" for r in shuffled))
    assert set(found.pending) == set(WHOLE.pending)
    assert set(found.running) == set(WHOLE.running)


@given(st.lists(st.sampled_from(sorted(NODES)), unique=True, min_size=1))
def test_shares_of_a_running_job_add_up(names: list[str]) -> None:
    header, *records = SQUEUE.split(MARKS.record + "\n")[:-1]
    row = next(r for r in records if "\x1fR\x1f" in r).split(FIELD)
    row[-4] = ",".join(names)
    text = MARKS.record.join([header + "", "\n" + FIELD.join(row), "\n"])
    (job,) = queue(text).running
    assert [s.node for s in job.shares] == names
    assert sum(s.taken.cpus for s in job.shares) == job.request.total.cpus
    assert sum(s.taken.mem_mib for s in job.shares) == job.request.total.mem_mib
    assert sum(s.taken.gpus for s in job.shares) == job.request.total.gpus


Forged = tuple[int, dict[str, str], int]
cells = st.dictionaries(
    st.sampled_from(JOB_COLUMNS).filter(lambda name: name not in {"jobid", "arraytaskid"}),
    st.sampled_from(["", "0", "1", "7", "PD", "R", "N/A", "(null)", "gres:gpu:8", "1000000000"]),
)


@given(st.lists(st.tuples(st.integers(0, 999), cells, st.integers(0, 999)), min_size=1, max_size=3))
def test_a_job_with_a_second_row_is_left_alone_and_no_other_changes(forged: list[Forged]) -> None:
    end, at = MARKS.record + "\n", JOB_COLUMNS.index("jobid")
    header, *records = (
        record.split(FIELD, len(JOB_COLUMNS) - 1) for record in SQUEUE.split(end)[:-1]
    )
    shown, doubted = list(records), set[JobId]()
    for which, changed, place in forged:
        row = records[which % len(records)]
        known = dict(zip(JOB_COLUMNS, row, strict=True)) | changed
        shown.insert(place % (len(shown) + 1), [known[name] for name in JOB_COLUMNS])
        if {name for name in changed if known[name] != row[JOB_COLUMNS.index(name)]}:
            doubted.add(JobId(int(row[at])))
    found = queue("".join(FIELD.join(row) + end for row in (header, *shown)))
    twice = {one.job_id for one in found.unreadable if one.why == TWICE}
    copied = {JobId(int(records[which % len(records)][at])) for which, *_ in forged}
    assert doubted <= twice <= copied
    assert not what(found, set()).keys() & twice
    assert what(found, twice) == what(WHOLE, twice)


Job = PendingJob | RunningJob


def what(found: JobsShown, but: set[JobId]) -> dict[JobId, list[Job]]:
    """By id, without addresses: how many records an array has may not be known."""
    shown: dict[JobId, list[Job]] = {}
    for job in found.pending:
        shown.setdefault(job.job_id, []).append(replace(job, address=""))
    for run in found.running:
        shown.setdefault(run.job_id, []).append(run)
    return {number: jobs for number, jobs in shown.items() if number not in but}
