"""The shipped models are what the script makes of the published architectures."""

import importlib.util
import sys
from pathlib import Path

import pytest

from ccctl.artifacts import codec
from synth.fusion.model import shapes

ROOT = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location("model_shapes", ROOT / "benchmarks" / "model_shapes.py")
model_shapes = sys.modules["model_shapes"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(model_shapes)


@pytest.mark.parametrize("name", shapes())
def test_the_file_is_what_the_script_makes_and_an_artifact(name):
    content = (ROOT / "synth" / "fusion" / "shapes" / f"{name}.json").read_bytes()
    assert model_shapes.content(name) == content
    assert codec.decode(content, name, "model").body.name == name


def test_there_is_a_file_for_each():
    assert set(model_shapes.MODELS) == set(shapes())
