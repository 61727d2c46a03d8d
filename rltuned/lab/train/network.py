"""Networks as PyTorch modules: the actors that training fits, and the critics that judge moments.

policies/actor runs an actor's weights without PyTorch. A critic is used in training only, never
shipped. `paper`: a three-layer perceptron over the flat 256 x 5 critic vector, zeros where no job
waits; it depends on the order of the rows, as the paper's does. `queue`: Deep Sets over all that
the `queue` actor reads; the order of its rows does not matter.
"""

import hashlib
import io
import math
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Final

import numpy as np
import torch
from pydantic import BaseModel
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from rltuned import __version__
from rltuned.core.features import COLUMN, COLUMNS, FIXED, MAX_QUEUE_SIZE, SCHEMA_ID, sampled
from rltuned.errors import ModelError
from rltuned.files import whole_folder
from rltuned.lab.kernel.compiler import Float32Array, IntArray
from rltuned.lab.train.predictor import Fitted, parity_bytes
from rltuned.policies.actor import (
    CARD_FILE,
    FORMAT,
    INPUTS,
    MASKED,
    PARITY_FILE,
    QUEUE_FEATURES,
    WEIGHTS_FILE,
    Architecture,
    Card,
    Kind,
    Network,
    NetworkPolicy,
    Training,
    Verdict,
    load_actor,
    outputs_of,
)
from rltuned.policies.predictor import CARD_FILE as PREDICTOR_CARD
from rltuned.policies.predictor import INPUTS_ID, PREDICTOR_FILE, PredictorCard, load_predictor
from rltuned.policies.predictor import PARITY_FILE as PREDICTOR_PARITY

LEAST_SPREAD: Final = 0.05
"""Deviation that a feature is counted with where it hardly differs."""
_COLUMNS: Final = [
    COLUMN[name]
    for name in ("submit_time", "requested_time", "can_schedule_now", "requested_gpus", "cff")
]
_LOG_FULL: Final = math.log1p(MAX_QUEUE_SIZE)


class TorchActor(nn.Module):
    """Per-job scorer of a kind: (..., jobs, features) -> (..., jobs, outputs), higher = sooner.

    Blank: its score is 0 for every job, so it is the rule that it corrects, or first come, first
    served; the hidden weights are random.
    """

    def __init__(self, kind: Kind, hidden: tuple[int, ...], reach: float = 0.0) -> None:
        super().__init__()
        self.kind, self.reach = kind, reach
        self.layers = perceptron(INPUTS[kind], hidden, outputs_of(kind, reach))
        for blank in self.layers[-1].parameters():
            nn.init.zeros_(blank)

    def forward(self, observation: Tensor, mask: Tensor) -> Tensor:
        """Score each job; rows where mask is False get MASKED."""
        scores: Tensor = self.layers(observation)
        return scores.masked_fill(~mask.unsqueeze(-1), MASKED)

    def spread_out(self, features: Tensor) -> None:
        """Let a blank actor's first layer see features (n, F) with mean 0 and deviation 1, by its
        weights; one that has learned is left as it is.

        Features are in [0, 1] and mostly close together: what they have in common would be learned
        long before what tells jobs apart.
        """
        first, *_, last = (m for m in self.layers if isinstance(m, nn.Linear))
        if last.weight.any():
            return
        with torch.no_grad():
            first.weight.div_(features.std(dim=0).clamp(min=LEAST_SPREAD))
            first.bias.sub_(first.weight @ features.mean(dim=0))


def read_by(kind: Kind, rows: Float32Array, flags: IntArray) -> Float32Array:
    """(R, features) what a network reads of rows; flags: of each row's moment, (R, 2)."""
    return sampled(rows, flags[:, 0] > 0, flags[:, 1] > 0) if kind == "paper" else rows


def placed_by(logits: Tensor, asked: Tensor, reach: float) -> Tensor:
    """(...) what a queue is ordered by, higher = sooner: less virtual time, within the bounds, or
    what the network says (reach 0). logits: (..., outputs); asked: (..., 4), see
    kernel/episode.Tape.
    """
    if not reach:
        return logits[..., 0]
    wait, own, share, upper = asked.unbind(dim=-1)
    factor = torch.exp(-reach * torch.tanh(logits))
    return wait - torch.minimum(own * factor[..., 0] + share * factor[..., -1], upper)


def perceptron(inputs: int, hidden: tuple[int, ...], outputs: int = 1) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [nn.Linear(inputs, width), nn.ReLU(inplace=True)]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, outputs))


def hidden_of(module: nn.Module) -> tuple[int, ...]:
    """Widths of the hidden layers."""
    return tuple(one.out_features for one in module.modules() if isinstance(one, nn.Linear))[:-1]


def network_of(module: TorchActor) -> Network:
    """The weights of a module as they are now, without PyTorch."""
    state = module.state_dict()
    return Network(
        module.kind,
        {name: value.detach().cpu().numpy().copy() for name, value in state.items()},
        module.reach,
    )


def policy_of(module: TorchActor) -> NetworkPolicy:
    """The same, to be played."""
    return NetworkPolicy("learner", network_of(module))


def module_of(network: Network) -> TorchActor:
    """A module with a network's weights."""
    biases = [len(value) for name, value in network.weights.items() if name.endswith(".bias")]
    module = TorchActor(network.kind, tuple(biases[:-1]), network.reach)
    module.load_state_dict({k: torch.from_numpy(v.copy()) for k, v in network.weights.items()})
    return module.eval()


class PaperCritic(nn.Module):
    """(rows of Q moments) -> (Q,) values; a queue beyond 256 jobs is cut at its oldest ones."""

    def __init__(self, hidden: tuple[int, int] = (32, 16)) -> None:
        super().__init__()
        self.layers = perceptron(MAX_QUEUE_SIZE * len(_COLUMNS), hidden)

    def forward(self, rows: Tensor, begins: IntArray) -> Tensor:
        """Rows (R, QUEUE_FEATURES) end to end; begins: (Q+1,) where those of each moment begin."""
        padded = rows.new_zeros(len(begins) - 1, MAX_QUEUE_SIZE, len(_COLUMNS))
        moment, place = whose(begins)
        seen = place < MAX_QUEUE_SIZE
        padded[moment[seen], place[seen]] = rows[seen][:, _COLUMNS]
        values: Tensor = self.layers(padded.flatten(1)).squeeze(-1)
        return values


def pooled(codes: Tensor, begins: IntArray) -> Tensor:
    """(Q, 2 H) mean and maximum of codes (R, H), none below 0, over the rows of each moment; equal
    ones share the slope of a maximum. begins: (Q+1,).
    """
    moment = torch.from_numpy(whose(begins)[0]).to(codes.device)
    none = codes.new_zeros(len(begins) - 1, codes.shape[1])
    rows = torch.from_numpy(np.maximum(np.diff(begins), 1)).to(codes)
    mean = none.index_add(0, moment, codes) / rows.unsqueeze(-1)
    most = none.scatter_reduce(0, moment.unsqueeze(-1).expand_as(codes), codes, "amax")
    return torch.cat([mean, most], dim=-1)


class QueueCritic(nn.Module):
    """(rows of Q moments) -> (Q,) values, whatever the order of the rows."""

    def __init__(self, features: int = QUEUE_FEATURES, hidden: tuple[int, int] = (32, 32)) -> None:
        super().__init__()
        self.encoder = nn.Linear(features, hidden[0])
        self.mix = nn.Linear(2 * hidden[0] + 1, hidden[1])
        self.head = nn.Linear(hidden[1], 1)

    def forward(self, rows: Tensor, begins: IntArray) -> Tensor:
        """As PaperCritic's."""
        queue = pooled(torch.relu(self.encoder(rows)), begins)
        size = torch.log1p(torch.from_numpy(np.diff(begins)).to(queue)) / _LOG_FULL
        mixed = torch.relu(self.mix(torch.cat([queue, size.unsqueeze(-1)], dim=-1)))
        values: Tensor = self.head(mixed).squeeze(-1)
        return values


Critic = PaperCritic | QueueCritic


def critic_of(kind: Kind) -> Critic:
    """What judges moments while a network of this kind learns; its weights still random."""
    return QueueCritic() if kind == "queue" else PaperCritic()


def whose(begins: IntArray) -> tuple[IntArray, IntArray]:
    """(R,) of every row its moment, and which of the moment's rows it is."""
    moment = np.arange(len(begins) - 1).repeat(np.diff(begins))
    return moment, np.arange(begins[-1]) - begins[moment]


def spans(first: IntArray, numbers: IntArray) -> tuple[IntArray, IntArray]:
    """The entries first[i] to first[i + 1] of some numbers i, end to end, and (n+1,) where those of
    each begin.
    """
    counts = first[numbers + 1] - first[numbers]
    begins = np.append(0, np.cumsum(counts))
    return np.arange(begins[-1]) + (first[numbers] - begins[:-1]).repeat(counts), begins


# Write a model bundle, whole or not at all, and only one that loads and scores the same.


PARITY_WINDOWS: Final = 4
Ranges = dict[str, tuple[float, float]]
"""Smallest and largest value by feature, that a training saw: what the daemon's drift figures
compare with."""


def export_bundle(
    target: Path,
    network: TorchActor,
    *,
    name: str,
    summary: str,
    parity: tuple[Tensor, Tensor],
    training: Training,
    results: dict[str, float],
    caveats: list[str],
    ranges: Ranges | None = None,
    verdict: Verdict | None = None,
) -> Card:
    """Write weights, parity pairs and card into a new folder. parity: windows (k, 256, features),
    masks (k, 256). ranges: of the features; None = of the parity windows. Raises ModelError.
    """
    files = _files(network, *parity)
    card = Card(
        format=FORMAT,
        name=name,
        summary=summary,
        schema_id=SCHEMA_ID,
        architecture=Architecture(
            kind=network.kind,
            features=INPUTS[network.kind],
            predicted=network.kind == "queue",
            hidden=hidden_of(network),
            reach=network.reach,
        ),
        files_sha256={k: hashlib.sha256(data).hexdigest() for k, data in files.items()},
        rltuned_version=__version__,
        git_commit=git_commit(Path(__file__).resolve().parents[3]),
        torch_version=str(torch.__version__),
        training=training,
        results=results,
        verdict=verdict,
        caveats=caveats,
        ranges=ranges_shown(network.kind, *parity) if ranges is None else ranges,
    )
    _write(target, files, CARD_FILE, card, load_actor)
    return card


def ranges_shown(kind: Kind, values: Tensor, masks: Tensor) -> Ranges:
    """Of every feature but for those whose meaning changes; empty: no job.
    values: (k, 256, features). masks: (k, 256), True on real jobs.
    """
    names = {"queue": COLUMNS, "paper": FIXED}.get(kind, ())
    seen = values[masks].numpy()
    if not len(seen):
        return {}
    return {
        name: (float(seen[:, i].min()), float(seen[:, i].max())) for i, name in enumerate(names)
    }


def export_predictor(
    target: Path, fitted: Fitted, *, command: str, seed: int, data: str, licence: str
) -> PredictorCard:
    """Write a predictor's weights, parity pairs and card into a new folder. Raises ModelError."""
    files = {
        PREDICTOR_FILE: fitted.predictor.to_bytes(),
        PREDICTOR_PARITY: parity_bytes(fitted.predictor),
    }
    figures = {k: v for k, v in asdict(fitted).items() if isinstance(v, int | float)}
    low, median, high = fitted.covered
    figures |= {"below_10%": low, "below_50%": median, "below_90%": high}
    card = PredictorCard(
        format=1,
        name=target.name,
        inputs_id=INPUTS_ID,
        files_sha256={k: hashlib.sha256(data).hexdigest() for k, data in files.items()},
        rltuned_version=__version__,
        command=command,
        seed=seed,
        data=data,
        data_licence=licence,
        # a figure that there is none of, as of a rank where no job has a limit, is left out
        results={k: round(v, 5) for k, v in figures.items() if math.isfinite(v)},
    )
    _write(target, files, PREDICTOR_CARD, card, load_predictor)
    return card


def _files(network: TorchActor, values: Tensor, masks: Tensor) -> dict[str, bytes]:
    weights = save_tensors({k: v.contiguous() for k, v in network.state_dict().items()})
    with torch.inference_mode():
        scores = network.eval()(values, masks)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, values=values.numpy(), masks=masks.numpy(), scores=scores.numpy())
    return {WEIGHTS_FILE: weights, PARITY_FILE: buffer.getvalue()}


def _write(
    target: Path,
    files: dict[str, bytes],
    name: str,
    card: BaseModel,
    check: Callable[[Path], object],
) -> None:
    """Into a folder beside the target, checked by loading it there, then moved into place. name: of
    the card's file.
    """
    if target.exists():
        raise ModelError(f"model {target}: exists already; remove it or choose another name")
    files |= {name: (card.model_dump_json(indent=2) + "\n").encode()}
    try:
        with whole_folder(target) as staged:
            for file, data in files.items():
                (staged / file).write_bytes(data)
            check(staged)
    except OSError as error:
        raise ModelError(f"model {target}: {error.strerror or error}") from error


def git_commit(root: Path) -> str:
    """The commit checked out at root, read off .git; "unknown" outside a checkout."""
    git = root / ".git"
    try:
        if git.is_file():  # of a worktree, which keeps its HEAD beside the branches of all
            git = Path(git.read_text().strip().removeprefix("gitdir: "))
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head
        shared = git.parents[1] if git.parent.name == "worktrees" else git
        return (shared / head.removeprefix("ref: ")).read_text().strip()
    except OSError:
        return "unknown"
