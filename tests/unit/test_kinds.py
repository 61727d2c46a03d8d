"""Digests of texts: what is alike, what is not, and that odd texts are harmless."""

import pytest

from rltuned.domain.kinds import KIND_NAMES, NO_KINDS, WIDTHS, Digester, KindName, Kinds

SALT = bytes(range(32))


def digest(kind: KindName, text: str, salt: bytes = SALT) -> int:
    found: int = getattr(Digester(salt).kinds((kind,), text), kind)
    return found


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("name", "train_001", "train_2"),
        ("name", "7train", "train "),
        ("command", "/home/a/train.sh --seed 1", "/home/a/train.sh --seed 2"),
        ("submit_line", "sbatch -n1 train.sh", "sbatch -n64 train.sh"),
        ("submit_line", "sbatch a b c d e f", "sbatch a b c d e g"),
    ],
)
def test_alike(kind: KindName, one: str, other: str) -> None:
    assert digest(kind, one) == digest(kind, other) != 0


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("name", "train", "Train"),
        ("name", "interactive", "wrap"),
        ("command", "/home/a/train1.sh", "/home/a/train2.sh"),
        ("work_dir", "/home/a 1", "/home/a 2"),
        ("submit_line", "sbatch train.sh", "srun train.sh"),
    ],
)
def test_not_alike(kind: KindName, one: str, other: str) -> None:
    assert digest(kind, one) != digest(kind, other)


@pytest.mark.parametrize("text", ["", "   ", "(null)", "\n"])
def test_what_is_not_there_is_0(text: str) -> None:
    found = Digester(SALT).kinds(KIND_NAMES, text, text, text, text)
    assert found == NO_KINDS == Kinds(0, 0, 0, 0)


def test_a_name_of_digits_alone_says_nothing() -> None:
    assert digest("name", "20261122") == 0


def test_the_same_text_is_another_digest_as_another_kind_or_with_another_salt() -> None:
    found = [digest(kind, "train") for kind in KIND_NAMES]
    assert len(set(found)) == len(KIND_NAMES)
    assert digest("name", "train", bytes(32)) != digest("name", "train")
    assert all(-(2**63) <= value < 2**63 for value in found)


@pytest.mark.parametrize("kind", KIND_NAMES)
@pytest.mark.parametrize("char", ["x", "é", "€", "\U0001f600", "\udcff", "|", "a\x1fb\n"])
def test_a_long_text_is_the_same_whole_or_cut_at_its_width(kind: KindName, char: str) -> None:
    whole = char * 10_000
    raw = whole.encode("utf-8", "surrogateescape")
    shown = raw.decode("utf-8", "backslashreplace")
    cut = raw[: WIDTHS[kind]].decode("utf-8", "backslashreplace")
    assert digest(kind, shown) == digest(kind, cut) != 0


def test_equal_texts_are_one_object_and_only_wanted_ones_are_named() -> None:
    digester = Digester(SALT, ["work_dir", "name"])
    assert digester.wanted == ("name", "work_dir")
    assert digester.kinds(("name",), "a") is digester.kinds(("name",), "a")


def test_a_short_salt_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Digester(b"short")
