"""A bundle is used whole or refused with its file and its reason."""

import hashlib
import io
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from rltuned.core.decide import Knobs, decide
from rltuned.core.features import FIXED, encode
from rltuned.errors import ModelError
from rltuned.lab.train.export import export_bundle
from rltuned.lab.train.network import TorchActor, take_over
from rltuned.policies.actor import Card, load_actor
from tests.builders import job, snapshot

SHIPPED = Path(__file__).parents[2] / "models"
BUNDLE = SHIPPED / "warmstart-saf"
BUNDLES = sorted(path.parent for path in SHIPPED.glob("*/card.json"))


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    copy = tmp_path / "warmstart-saf"
    shutil.copytree(BUNDLE, copy)
    return copy


def seal(bundle: Path, **changes: object) -> None:
    """Write a changed card, so that only the check under test can object."""
    card = json.loads((bundle / "card.json").read_text()) | changes
    (bundle / "card.json").write_text(json.dumps(card))


def reseal(bundle: Path, name: str, data: bytes) -> None:
    (bundle / name).write_bytes(data)
    card = json.loads((bundle / "card.json").read_text())
    seal(bundle, files_sha256=card["files_sha256"] | {name: hashlib.sha256(data).hexdigest()})


@pytest.mark.parametrize("path", BUNDLES, ids=lambda path: path.name)
def test_every_shipped_model_loads_and_passes_its_self_test(path: Path) -> None:
    actor = load_actor(path)
    assert actor.name == f"model:{path.name}"
    assert len(actor.digest) == 64


def test_the_warm_start_orders_a_queue_as_its_teacher_would() -> None:
    world = snapshot(
        job(1, gpus=8, time_limit_s=86_400.0),
        job(2, gpus=1, time_limit_s=600.0),
        job(3, gpus=2, time_limit_s=7_200.0),
    )
    decision = decide(world, load_actor(BUNDLE), Knobs())
    assert [e.job.job_id for e in decision.entries] == [2, 3, 1]


def test_a_queue_longer_than_a_window_gets_a_score_for_every_job() -> None:
    world = snapshot(*(job(i, gpus=i % 4, time_limit_s=60.0 * i) for i in range(1, 601)))
    actor = load_actor(BUNDLE)
    scores = actor.score(encode(world.pending, world))
    assert scores.shape == (600,)
    assert np.isfinite(scores).all()
    assert actor.score(encode((), world)).shape == (0,)


def test_a_job_scores_the_same_in_whatever_window_and_row_it_stands() -> None:
    world = snapshot(*(job(i, gpus=i % 4, time_limit_s=60.0 * i) for i in range(1, 301)))
    actor = load_actor(BUNDLE)
    straight = actor.score(encode(world.pending, world))
    turned = actor.score(encode(world.pending[::-1], world))[::-1]
    assert turned == pytest.approx(straight, rel=1e-5)


def _nan(b: Path) -> None:
    tensors = load_tensors((b / "actor.safetensors").read_bytes())
    first = next(iter(tensors))
    reseal(b, "actor.safetensors", save_tensors(tensors | {first: tensors[first] * float("nan")}))


def _missing_tensor(b: Path) -> None:
    tensors = load_tensors((b / "actor.safetensors").read_bytes())
    tensors.pop(next(iter(tensors)))
    reseal(b, "actor.safetensors", save_tensors(tensors))


def _other_weights(b: Path) -> None:
    tensors = load_tensors((b / "actor.safetensors").read_bytes())
    reseal(b, "actor.safetensors", save_tensors({k: v + 0.25 for k, v in tensors.items()}))


@pytest.mark.parametrize("path", BUNDLES, ids=lambda path: path.name)
def test_another_processor_may_round_scores_otherwise(path: Path, tmp_path: Path) -> None:
    """float32 rounds in proportion: a step in the last place of a score of 169 is 1.5e-5."""
    bundle = tmp_path / path.name
    shutil.copytree(path, bundle)
    with np.load(bundle / "parity.npz") as archive:
        arrays = dict(archive)
    for direction in (np.inf, -np.inf):
        scores = arrays["scores"]
        for _ in range(2):
            scores = np.nextafter(scores, np.float32(direction))
        buffer = io.BytesIO()
        np.savez(buffer, **(arrays | {"scores": scores}))
        reseal(bundle, "parity.npz", buffer.getvalue())
        load_actor(bundle)


def _flip(b: Path) -> None:
    data = bytearray((b / "actor.safetensors").read_bytes())
    data[-1] ^= 1
    (b / "actor.safetensors").write_bytes(data)


def _extra_field(b: Path) -> None:
    seal(b, surprise=1)


def _wide(b: Path) -> None:
    card = json.loads((b / "card.json").read_text())
    seal(b, architecture=card["architecture"] | {"hidden": [64, 16]})


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda b: (b / "card.json").unlink(), "card.json: No such file"),
        (lambda b: (b / "parity.npz").unlink(), "parity.npz: No such file"),
        (lambda b: (b / "card.json").write_text("{"), "card.json: field (whole): Invalid JSON"),
        (_extra_field, "card.json: field surprise: Extra inputs"),
        (lambda b: seal(b, schema_id="rltuned-17-other"), "trained on features rltuned-17-other"),
        (lambda b: seal(b, format=3), "field format"),
        (_flip, "actor.safetensors: SHA-256"),
        (_nan, "is not finite float32"),
        (_missing_tensor, "missing tensors: layers."),
        (_wide, "is F32 [32]; card.json says F32 [64]"),
        (_other_weights, "parity.npz: scores differ by"),
        (lambda b: (b / "actor.safetensors").chmod(0o666), "others may write to it"),
        (lambda b: b.chmod(0o777), "others may write to it"),
    ],
)
def test_a_bundle_that_is_not_right_is_refused_with_its_reason(
    bundle: Path, spoil: Callable[[Path], object], message: str
) -> None:
    spoil(bundle)
    with pytest.raises(ModelError) as caught:
        load_actor(bundle)
    assert message in str(caught.value)
    assert str(bundle) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_folder_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such folder"):
        load_actor(tmp_path / "nothing")


def test_export_refuses_an_existing_folder_and_leaves_nothing_half_written(bundle: Path) -> None:
    card = Card.model_validate_json((bundle / "card.json").read_text())
    actor = load_actor(bundle)
    values, masks = torch.zeros(1, 256, 8), torch.zeros(1, 256, dtype=torch.bool)
    values[0, :2] = torch.tensor([[0.25], [0.5]])
    values[0, 2] = 0.9  # padding
    masks[0, :2] = True

    def again(target: Path, *, broken: bool = False) -> None:
        form = actor.card.architecture
        network = TorchActor(form.kind, form.hidden, form.reach)
        take_over(network, actor.network)
        if broken:
            with torch.no_grad():
                next(network.parameters()).fill_(float("nan"))
        export_bundle(
            target, network, summary="copy", parity=(values, masks),
            training=card.training, results={}, caveats=[],
        )  # fmt: skip

    with pytest.raises(ModelError, match="exists already"):
        again(bundle)
    again(bundle.parent / "copy")
    made = load_actor(bundle.parent / "copy")
    assert made.card.name == "copy"
    assert made.ranges == dict.fromkeys(FIXED, (0.25, 0.5))
    with pytest.raises(ModelError, match="not finite"):
        again(bundle.parent / "broken", broken=True)
    assert sorted(p.name for p in bundle.parent.iterdir()) == ["copy", "warmstart-saf"]


def test_a_card_without_ranges_is_of_an_older_release() -> None:
    out = json.loads((BUNDLE / "card.json").read_text())
    out.pop("ranges", None)
    assert Card.model_validate(out).ranges == {}


def test_a_named_pipe_in_place_of_a_file_is_not_waited_for(bundle: Path) -> None:
    (bundle / "parity.npz").unlink()
    os.mkfifo(bundle / "parity.npz", 0o600)
    with pytest.raises(ModelError, match=r"parity\.npz: not a plain file"):
        load_actor(bundle)
