"""What is generated from the keys: the example is whole, and every key is explained."""

import tomllib
from pathlib import Path

import pytest

from rltuned.settings import load
from rltuned.settings.keys import Settings
from rltuned.settings.reference import (
    example,
    fields_of,
    header,
    is_repeated,
    tables,
    toml,
)  # fmt: skip
from tests.configs import settings_file


def test_the_example_holds_every_key_and_only_defaults(tmp_path: Path) -> None:
    path = settings_file(tmp_path, example())
    assert load(path).settings == Settings()
    tree = tomllib.loads(example())
    for name, _, model in tables():
        if is_repeated(name):
            assert all(f"\n# {key} = " in example() for key in model.model_fields)
            assert f"\n# {header(name)}\n" in example()
            continue
        absent = {k for k, f in model.model_fields.items() if f.default is None}
        assert set(tree[name]) == set(model.model_fields) - absent
        for key in absent:
            assert f"\n# {key} =\n" in example()


def test_every_key_is_explained() -> None:
    for name, about, model in tables():
        assert about.endswith("."), name
        for key, field in fields_of(model).items():
            assert field.description, f"{name}.{key}"
            assert len(field.description) > 15, f"{name}.{key}"


def test_values_as_toml() -> None:
    assert toml(["a", 'b"']) == '["a", "b\\""]'
    with pytest.raises(TypeError):
        toml({})
