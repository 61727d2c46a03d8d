"""The run-time predictor: a small network over what is known of a job's kinds (core/run_times).

Its folder holds `predictor.safetensors` (weights and nothing else), `parity.npz` (inputs with the
logits that PyTorch gave) and `predictor.json`, its card. It is one for all policies: the rules
`delay` and `qssf` and the networks read the same predictions.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict
from safetensors.numpy import save

from rltuned.core import run_times
from rltuned.core.memory import Job, RunTimeMemory
from rltuned.core.run_times import BINS, INPUTS, KEYS, Float32Array, FloatArray
from rltuned.domain.jobs import JobRun, RunningJob
from rltuned.errors import ModelError
from rltuned.policies import files
from rltuned.policies.actor import Weights, perceptron, shapes

PREDICTOR_FILE: Final = "predictor.safetensors"
PARITY_FILE: Final = "parity.npz"
CARD_FILE: Final = "predictor.json"
HIDDEN: Final = (48, 32)
INPUTS_ID: Final = (
    "run-times-"
    + hashlib.sha256(
        repr((KEYS, run_times.SIGNS, INPUTS, run_times.SLOW, run_times.FAST)).encode()
        + run_times.EDGES.tobytes()
    ).hexdigest()[:12]
)
"""Changes whenever what the network reads or answers does."""


class PredictorCard(BaseModel):
    """predictor.json."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal[1]
    name: str
    inputs_id: str
    files_sha256: Mapping[str, str]
    rltuned_version: str
    command: str
    seed: int
    data: str
    data_licence: str
    results: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Predictor:
    """A fitted network. digest: of its card; "" = it was never sealed."""

    weights: Weights
    digest: str = ""

    def logits(self, inputs: Float32Array) -> FloatArray:
        """(n, INPUTS) -> (n, BINS)."""
        return perceptron(self.weights, inputs).astype(np.float64)

    def to_bytes(self) -> bytes:
        return bytes(save({name: np.ascontiguousarray(w) for name, w in self.weights.items()}))


def load_predictor(folder: Path) -> Predictor:
    """A predictor, after its self-test. Raises ModelError: names the file and what is wrong: owner,
    mode, inputs, values, or answers other than when it was fitted.
    """
    with files.named(folder):
        if not folder.is_dir():
            raise ModelError(f"model {folder}: no such folder")
        files.check_folder(folder)
        raw = files.read(folder / CARD_FILE, files.MAX_CARD_BYTES)
        card = files.parsed(PredictorCard, folder / CARD_FILE, raw)
        if card.inputs_id != INPUTS_ID:
            raise ModelError(
                f"model {folder / CARD_FILE}: fitted to inputs {card.inputs_id}, this release "
                f"computes {INPUTS_ID}; fit it again"
            )
        path, wanted = folder / PREDICTOR_FILE, shapes(INPUTS, HIDDEN, BINS)
        weights = files.read_tensors(path, _sealed(path, card), wanted)
        found = Predictor(weights, hashlib.sha256(raw).hexdigest())
        _self_test(found, folder / PARITY_FILE, _sealed(folder / PARITY_FILE, card))
        return found


def _sealed(path: Path, card: PredictorCard) -> bytes:
    return files.read_sealed(path, card.files_sha256.get(path.name), "its card says")


def _self_test(predictor: Predictor, path: Path, data: bytes) -> None:
    inputs, logits = files.read_arrays(path, data, "inputs", "logits")
    if inputs.shape[1:] != (INPUTS,) or logits.shape != (len(inputs), BINS) or not len(inputs):
        raise ModelError(f"model {path}: arrays of shape {inputs.shape} and {logits.shape}")
    found: NDArray[np.float32] = predictor.logits(inputs.astype(np.float32)).astype(np.float32)
    worst = files.unlike(found, logits.astype(np.float32))
    if not worst <= files.PARITY_TOLERANCE:
        raise ModelError(f"model {path}: answers differ by {worst:.2g} from those of the fit")


# What happened to jobs, fed to a memory of run times in the order of time.


def replay(memory: RunTimeMemory, ended: Iterable[JobRun]) -> None:
    """Feed a memory with the past, as if it had been seen."""
    runs = list(ended)
    jobs = [run.job for run in runs]
    feed(memory, jobs, jobs, runs)


def feed(
    memory: RunTimeMemory,
    submitted: Iterable[Job],
    started: Iterable[RunningJob],
    ended: Iterable[JobRun],
) -> None:
    """Feed a memory in the order of time: at one instant ends, then submissions, then starts. A run
    of less than a second is submitted and started before it ends all the same.
    """
    events: list[tuple[float, int, int, Job | JobRun]] = [
        (float(job.submitted_at or 0.0), 1, job.job_id, job) for job in submitted
    ]
    events += [(float(job.started_at), 2, job.job_id, job) for job in started]
    events += [(_end_s(run), 0, run.job.job_id, run) for run in ended]
    events.sort(key=lambda event: event[:3])
    for what, batch in groupby(events, key=lambda event: event[1]):
        some = [one for *_, one in batch]
        if what == 0:
            memory.end([run for run in some if isinstance(run, JobRun)])
        elif what == 1:
            memory.submit([job for job in some if not isinstance(job, JobRun)])
        else:
            memory.start([job for job in some if isinstance(job, RunningJob)])


def _end_s(run: JobRun) -> float:
    began, end_s = float(run.job.started_at), float(run.ended_at or 0.0)
    return end_s if end_s > began else began + 0.5
