"""What a decision depends on survives being written down, in one way only."""

import sys
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from rltuned.core.decide import Knobs
from rltuned.core.select import Scope
from rltuned.errors import JournalError
from rltuned.journal.cycles import digest_of, pack_plan, unpack_plan
from rltuned.journal.inputs import Recipe, decoded
from rltuned.settings import load
from tests.programs import ran

EXAMPLE = Path(__file__).resolve().parents[3] / "deploy" / "rltuned.example.toml"
NAMES = frozenset(f"user{n}" for n in range(40))


def recipes() -> list[Recipe]:
    knobs = Knobs(Scope(excluded_users=NAMES, min_age_s=float("inf")), placement="milp")
    return [
        Recipe("fcfs", Knobs()),
        Recipe("model:rltune", knobs, "ab" * 32, "cbc"),
        Recipe("f1", load(EXAMPLE).settings.knobs()),
    ]


@pytest.mark.parametrize("recipe", recipes())
def test_decoded_is_what_was_encoded(recipe: Recipe) -> None:
    assert decoded(recipe.encoded()) == recipe


def test_equal_recipes_have_one_text_in_every_process() -> None:
    program = (
        "from tests.unit.daemon.test_recipe import recipes\n"
        "from rltuned.journal.cycles import digest_of\n"
        "print(digest_of(recipes()[1].encoded()))\n"
    )
    digests = {
        ran(
            sys.executable, "-c", program, env={"PYTHONHASHSEED": seed, "PATH": "/usr/bin:/bin"}
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert digests == {digest_of(recipes()[1].encoded())}


def test_a_recipe_of_other_settings_is_refused() -> None:
    text = Recipe("f1", Knobs()).encoded()
    with pytest.raises(JournalError, match=r"settings of the cycle: knobs\.placement"):
        decoded(text.replace('"placement": "pack"', '"placement": "magic"'))
    assert decoded(replace(Recipe("f1", Knobs()), release="0").encoded()).release == "0"


ACTION: dict[str, object] = {"action": "SetSiteFactor", "job_id": 7, "address": "7"}
PLAN: dict[str, object] = {"actions": [ACTION], "reasons": {}, "notes": []}


@pytest.mark.parametrize(
    "body",
    [
        b"", b"x", pack_plan(PLAN)[:-3], pack_plan({}), zlib.compress(b"[]"),
        pack_plan(PLAN | {"actions": None}), pack_plan(PLAN | {"actions": [{"action": "x"}]}),
        pack_plan(PLAN | {"reasons": {"7": {"why": "short"}}}), pack_plan(PLAN | {"notes": 3}),
    ],
)  # fmt: skip
def test_a_damaged_plan_is_refused(body: bytes) -> None:
    assert unpack_plan(pack_plan(PLAN)) == PLAN
    with pytest.raises(JournalError, match="cannot be read"):
        unpack_plan(body)
