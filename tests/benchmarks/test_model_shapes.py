"""The shipped models are what the script makes of the published architectures."""

from pathlib import Path

import model_shapes
import pytest

from ccctl.artifacts import codec
from synth.fusion.model import shapes

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", shapes())
def test_the_file_is_what_the_script_makes_and_an_artifact(name):
    content = (ROOT / "synth" / "fusion" / "shapes" / f"{name}.json").read_bytes()
    assert model_shapes.content(name) == content
    assert codec.decode(content, name, "model").body.name == name


def test_there_is_a_file_for_each():
    assert set(model_shapes.MODELS) == set(shapes())
