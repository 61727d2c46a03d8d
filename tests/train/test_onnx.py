"""Networks as ONNX: the same scores in another run time."""

import importlib.util
from pathlib import Path

import pytest
from torch import Tensor
from typer.testing import CliRunner

from rltuned.cli import app
from rltuned.errors import ModelError
from rltuned.policies.actor import Actor, load_actor
from rltuned.policies.network import PaperActor
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


class Counting(PaperActor):
    """Its scores depend on how often it was asked: no file of weights can say that."""

    asked = 0

    def forward(self, observation: Tensor, mask: Tensor) -> Tensor:
        self.asked += 1
        return super().forward(observation, mask) + 0.1 * self.asked


def test_a_network_that_the_file_cannot_hold_is_not_written(tmp_path: Path) -> None:
    from rltuned.train.onnx_file import write_onnx  # noqa: PLC0415 - needs the extra

    bundle = Path("models/rltune-paper")
    shipped = load_actor(bundle)
    actor = Actor(shipped.card, "", Counting(8, (32, 16)), shipped.curve)
    with pytest.raises(ModelError, match="its scores differ by"):
        write_onnx(actor, bundle, tmp_path / "a.onnx")
    assert not (tmp_path / "a.onnx").exists()
