"""What a reload cannot change is named, so that nobody waits for it."""

from rltuned.settings.keys import Settings
from rltuned.settings.source import needs_restart


def test_only_what_is_read_at_start_is_named() -> None:
    start = Settings.model_validate({})
    assert needs_restart(start, Settings.model_validate({})) == []
    changed = {
        "http": {"jobs": True},
        "log": {"format": "json"},
        "predictor": {"enabled": False},
        "policy": {"name": "sjf"},
    }
    assert needs_restart(start, Settings.model_validate(changed)) == [
        "http.jobs",
        "log.format",
        "predictor.enabled",
    ]
