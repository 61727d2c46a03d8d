"""The search for reference cycles rests while the loop works, and only then."""

import gc

import pytest

from rltuned.daemon.loop import uncollected


def test_rests_meanwhile() -> None:
    assert gc.isenabled()
    with uncollected():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_goes_on_after_an_error() -> None:
    with pytest.raises(ValueError, match="seen"), uncollected():
        raise ValueError("seen")
    assert gc.isenabled()


def test_stays_off_where_somebody_put_it_off() -> None:
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
