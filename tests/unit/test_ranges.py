"""A new bundle says on its card what its training saw; an older one says nothing, and loads."""

import json
from pathlib import Path

import torch

from rltuned.core.features import FIXED
from rltuned.lab.train.network import export_bundle, module_of
from rltuned.policies.actor import Card, load_actor

BUNDLE = Path(__file__).parents[2] / "models" / "warmstart-saf"


def test_the_ranges_are_of_real_rows_only(tmp_path: Path) -> None:
    card = Card.model_validate_json((BUNDLE / "card.json").read_text())
    values = torch.zeros(1, 256, 8)
    values[0, 0] = 0.25
    values[0, 1] = 0.5
    values[0, 2] = 0.9  # padding
    masks = torch.zeros(1, 256, dtype=torch.bool)
    masks[0, :2] = True
    export_bundle(
        tmp_path / "copy",
        module_of(load_actor(BUNDLE).network),
        name="copy",
        summary="copy",
        parity=(values, masks),
        training=card.training,
        results={},
        caveats=[],
    )
    assert load_actor(tmp_path / "copy").ranges == dict.fromkeys(FIXED, (0.25, 0.5))


def test_a_card_without_ranges_is_of_an_older_release() -> None:
    out = json.loads((BUNDLE / "card.json").read_text())
    out.pop("ranges", None)
    assert Card.model_validate(out).ranges == {}
