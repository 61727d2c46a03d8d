"""No text makes the settings fail in another way than with a SettingsError that names the file.

What is accepted can be kept in the journal: the daemon does so at every start and reload.
"""

import json
import tempfile
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from rltuned.errors import SettingsError
from rltuned.settings import load
from rltuned.settings.keys import Settings
from rltuned.settings.reference import tables, toml
from tests.examples import examples

VALUES = st.one_of(
    st.booleans().map(toml),
    st.integers(-(2**40), 2**40).map(str),
    st.floats().map(str),
    st.text(max_size=8).map(toml),
    st.lists(st.integers(-5, 5), max_size=3).map(str),
    st.sampled_from(["{}", "[[]]", "1979-05-27", '"x"', "{ a = 1 }"]),
)
KEYS = st.sampled_from(
    [f"{name}.{key}" for name, _, model in tables() for key in model.model_fields]
)
LINES = st.lists(st.tuples(KEYS, VALUES).map(" = ".join), max_size=6)


def read(text: str) -> Settings | None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rltuned.toml"
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        try:
            return load(path).settings
        except SettingsError as error:
            out = str(error).splitlines()
    assert all(line.startswith(str(path)) for line in out)
    return None


@given(st.text())
@settings(deadline=None)
def test_any_text(text: str) -> None:
    read(text)


@given(LINES)
@example(['daemon.state_dir = "\\u001e"'])
@example(['scope.partitions = ["a\\u2028b"]', 'scope.sla_partitions = ["a\\u2028b"]'])
@examples(300)
def test_any_values(lines: list[str]) -> None:
    accepted = read("\n".join(lines))
    if accepted is not None:
        kept = json.dumps(accepted.model_dump(mode="json"), allow_nan=False)
        assert Settings.model_validate(json.loads(kept)) == accepted
