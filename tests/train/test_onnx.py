"""Networks as ONNX: the same scores in another run time."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from rltuned.cli import app
from rltuned.core.capacity import BoolArray
from rltuned.core.features import Float32Array
from rltuned.errors import ModelError
from rltuned.policies.actor import Actor, load_actor
from rltuned.policies.files import PARITY_TOLERANCE
from rltuned.policies.network import Network
from rltuned.train.probes import compare_with_torch
from tests.needs import skip_or_fail

MODELS = [card.parent for card in sorted(Path("models").glob("*/card.json"))]


@pytest.fixture(autouse=True)
def _extra() -> None:
    for name in ("onnx", "onnxruntime"):
        if importlib.util.find_spec(name) is None:
            skip_or_fail(f"{name} is not installed")


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.name)
def test_shipped_models_score_the_same_as_onnx(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.onnx"
    done = CliRunner().invoke(app, ["models", "onnx", str(model), "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert f"same scores as model:{model.name}" in done.output
    assert 1_000 < out.stat().st_size < 100_000
    again = CliRunner().invoke(app, ["models", "onnx", str(model), "--out", str(out)])
    assert isinstance(again.exception, ModelError)


BUNDLE = Path("models/rltune-paper")


class Shifted(Network):
    """Its scores are not those of its weights."""

    def forward(self, values: Float32Array, mask: BoolArray) -> Float32Array:
        return super().forward(values, mask) + np.float32(0.1)


def test_a_network_that_the_file_cannot_hold_is_not_written(tmp_path: Path) -> None:
    from rltuned.train.onnx_file import write_onnx  # noqa: PLC0415 - needs the extra

    shipped = load_actor(BUNDLE)
    network = Shifted(shipped.network.kind, shipped.network.weights, shipped.network.reach)
    actor = Actor(shipped.card, "", network)
    with pytest.raises(ModelError, match="scores differ by"):
        write_onnx(actor, BUNDLE, tmp_path / "a.onnx")
    assert not (tmp_path / "a.onnx").exists()


def test_pytorch_gives_the_daemons_scores_or_the_bundle_is_refused() -> None:
    shipped = load_actor(BUNDLE)
    assert compare_with_torch(shipped, BUNDLE) <= PARITY_TOLERANCE
    network = Shifted(shipped.network.kind, shipped.network.weights, shipped.network.reach)
    with pytest.raises(ModelError, match="PyTorch's scores differ by"):
        compare_with_torch(Actor(shipped.card, "", network), BUNDLE)
    done = CliRunner().invoke(app, ["models", "verify", "--torch", str(BUNDLE)])
    assert done.exit_code == 0, done.output
    assert "PyTorch's scores up to " in done.output
