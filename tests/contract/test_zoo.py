"""The same questions to recorded answers of every release and to a live Slurm."""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rltuned.cli.check_slurm import SITE, facts_of
from rltuned.cli.facts import Status, answers
from rltuned.domain.jobs import PendingJob, RunningJob
from rltuned.domain.snapshot import Snapshot
from rltuned.settings import Loaded, Settings
from rltuned.slurm.backend import SlurmBackend
from rltuned.slurm.pyslurm import ReaderChoice
from rltuned.slurm.run import SlurmCli
from tests.clusters import cluster
from tests.recorded import (
    DATA,
    RELEASES,
    WITH_PYSLURM,
    Recording,
    answers_of_pyslurm,
    replay,
    replay_beside,
)
from tests.zoo import FIELDS, NODES, PENDING, REQUESTS, RUNNING, SHARES, ZOO_NODES, fill

PYSLURM_PYTHON = os.environ.get("RLTUNED_TEST_PYSLURM", "")
"""A Python that has the pyslurm of the Slurm under test (`make test-pyslurm`); empty = none."""


@dataclass(frozen=True)
class Observed:
    snapshot: Snapshot
    ids: dict[str, int]
    backend: SlurmBackend
    shows_throttle: bool

    def pending(self, name: str) -> PendingJob:
        return next(j for j in self.snapshot.pending if j.job_id == self.ids[name])

    def running(self, name: str) -> RunningJob:
        return next(j for j in self.snapshot.running if j.job_id == self.ids[name])


LIVE = ("live", "live pyslurm") if PYSLURM_PYTHON else ("live",)
RECORDED = (*RELEASES, *(f"{release} pyslurm" for release in WITH_PYSLURM))


@pytest.fixture(
    scope="module",
    params=[*RECORDED, *(pytest.param(name, marks=pytest.mark.slurm) for name in LIVE)],
)
def seen(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Observed]:
    release, _, reader = request.param.partition(" ")
    if release == "live":
        with cluster(nodes=ZOO_NODES) as lab:
            zoo = fill(lab)
            python = Path(PYSLURM_PYTHON) if reader else None
            received: list[ReaderChoice] = []
            backend = SlurmBackend(
                SlurmCli(conf=lab.conf), time.time, pyslurm=python, on_reading=received.append
            )
            yield Observed(backend.observe(), zoo.ids, backend, shows_throttle=True)
            assert not any(reading.stands_in for reading in received)
        return
    recording = Recording(DATA / release)
    folder = tmp_path_factory.mktemp("replay")
    if reader:
        backend = replay_beside(answers_of_pyslurm(folder, recording), folder, recording)
    else:
        backend = replay(folder, recording)
    # what was recorded before throttles were asked for with a squeue of their own lacks them
    throttle = bool(reader) or "--array-unique" in recording.text("usage")
    yield Observed(backend.observe(), recording.ids, backend, throttle)


def test_every_record_is_there_once(seen: Observed) -> None:
    split_and_het = 3  # two tasks split from array_split, and the second component of het
    assert len(seen.snapshot.pending) == len(PENDING) + split_and_het + 2  # het leader, r_array
    assert len(seen.snapshot.running) == len(RUNNING) + 2
    assert seen.snapshot.others == 0
    assert seen.snapshot.cluster == "rltlab"


@pytest.mark.parametrize("name", REQUESTS)
def test_request(seen: Observed, name: str) -> None:
    request = seen.pending(name).request
    assert {key: getattr(request, key) for key in REQUESTS[name]} == REQUESTS[name]


@pytest.mark.parametrize("name", FIELDS)
def test_field(seen: Observed, name: str) -> None:
    look, expected = FIELDS[name]
    if name == "array" and not seen.shows_throttle:
        expected = (*expected[:2], None)
    assert look(seen.pending(name)) == _with_id(expected, seen.ids[name])


def _with_id(expected: Any, job_id: int) -> Any:
    if isinstance(expected, tuple):
        return tuple(_with_id(e, job_id) for e in expected)
    if isinstance(expected, str) and "{id}" in expected:
        return expected.format(id=job_id)
    return expected


@pytest.mark.parametrize("name", NODES)
def test_node(seen: Observed, name: str) -> None:
    node = next(n for n in seen.snapshot.nodes if n.name == name)
    counts = tuple((g.gpu_type, g.total, g.free) for g in node.gpus)
    assert (node.schedulable, node.total, node.free, counts) == NODES[name]


@pytest.mark.parametrize("name", SHARES)
def test_shares_of_running_job(seen: Observed, name: str) -> None:
    shares = tuple((s.node, s.taken, s.gpu_type) for s in seen.running(name).shares)
    assert shares == SHARES[name]


def test_running_job_knows_its_limit_and_its_start(seen: Observed) -> None:
    job = seen.running("r_typed")
    assert job.request.time_limit_s == 1800.0
    assert 0 < job.started_at <= seen.snapshot.taken_at + 1
    assert seen.running("r_exclusive").latest_end() == float("inf")
    assert seen.running("r_multi").user == "nobody"


def test_partitions(seen: Observed) -> None:
    found = {p.name: p for p in seen.snapshot.partitions}
    assert set(found) == {"gpu", "sla", "short", "whole", "closed"}
    assert [n for n, p in found.items() if p.default] == ["gpu"]
    assert [n for n, p in found.items() if not p.up] == ["closed"]
    assert (found["gpu"].max_time_s, found["gpu"].default_time_s) == (float("inf"), 3600.0)
    assert (found["short"].max_time_s, found["sla"].default_time_s) == (600.0, None)
    assert (found["sla"].priority_tier, found["sla"].priority_factor) == (2, 20)
    assert found["whole"].oversubscribe == "EXCLUSIVE"


def test_node_belongs_to_its_partitions_and_has_its_features(seen: Observed) -> None:
    node = next(n for n in seen.snapshot.nodes if n.name == "p1")
    assert node.partitions == ("gpu", "short", "sla")
    assert node.features == ("pascal",)


def test_split_tasks_are_records_of_their_own(seen: Observed) -> None:
    head = seen.pending("array_split")
    others = [
        j
        for j in seen.snapshot.pending
        if j.array is not None and j.array.array_job_id == head.job_id and j.job_id != head.job_id
    ]
    names = {j.address: (j.nice, j.held_by) for j in others}
    assert sorted(names.values()) == [(0, "admin"), (7, "")]
    tasks = {f"{head.job_id}_{j.array.listed}" for j in others if j.array is not None}
    assert names.keys() == tasks
    assert all(name.rpartition("_")[2].isdigit() for name in names)


def test_equal_requests_are_one_object(seen: Observed) -> None:
    held = (seen.pending("held_by_user"), seen.pending("held_by_admin"))
    assert held[0].request is held[1].request


def test_reading_twice_gives_the_same(seen: Observed) -> None:
    again = seen.backend.observe()
    assert [(j.job_id, j.address, j.request) for j in again.pending] == [
        (j.job_id, j.address, j.request) for j in seen.snapshot.pending
    ]
    assert again.nodes == seen.snapshot.nodes


def test_site_is_fit(seen: Observed) -> None:
    facts = facts_of(Loaded(Settings()), seen.backend)
    checks = {c.name: c.status for c in answers(SITE, facts)}
    assert checks.pop("clock") in {Status.OK, Status.WARN}
    assert set(checks.values()) == {Status.OK}
