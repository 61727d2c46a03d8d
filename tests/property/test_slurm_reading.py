"""Damaged answers are refused or understood whole; nothing else ever comes out of the readers."""

from hypothesis import given
from hypothesis import strategies as st

from rltuned.domain.cluster import Node
from rltuned.errors import SnapshotError
from rltuned.slurm.columns import FIELD, JOB_COLUMNS, NODE_COLUMNS
from rltuned.slurm.jobs import SqueueAnswer, read_queue
from rltuned.slurm.nodes import read_nodes
from rltuned.slurm.request import Requests
from rltuned.slurm.talk import Answer
from tests.recorded import DATA, MARKS, Recording

RECORDED = Recording(DATA / "22.05")
SQUEUE, SINFO = RECORDED.text("squeue"), RECORDED.text("sinfo")


def nodes(text: str) -> dict[str, Node]:
    rows = MARKS.rows("sinfo", Answer(text, "", 0), len(NODE_COLUMNS))
    return {n.name: n for n in read_nodes(rows).nodes}


NODES = nodes(SINFO)


def queue(text: str) -> SqueueAnswer:
    rows = MARKS.rows("squeue", Answer(text, "", 0), len(JOB_COLUMNS))
    return read_queue(rows, Requests(frozenset({"whole"}), memory_counts=True), NODES)


WHOLE = queue(SQUEUE)
noise = st.text(alphabet=f"0123456789:,=|()[]%-NAgpusK\n{FIELD}\x1e#é\x00", max_size=12)
hurt = st.tuples(st.floats(0, 1), st.integers(0, 30), noise)


def damage(text: str, wounds: list[tuple[float, int, str]]) -> str:
    for place, length, put in wounds:
        start = int(place * len(text))
        text = text[:start] + put + text[start + length :]
    return text


@given(st.lists(hurt, min_size=1, max_size=4))
def test_damaged_queue(wounds: list[tuple[float, int, str]]) -> None:
    try:
        found = queue(damage(SQUEUE, wounds))
    except SnapshotError:
        return
    assert all(j.priority >= 0 and j.partitions for j in found.pending)


@given(st.lists(hurt, min_size=1, max_size=4))
def test_damaged_nodes(wounds: list[tuple[float, int, str]]) -> None:
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
