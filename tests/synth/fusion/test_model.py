"""The shipped models are those of DeAR's Table I, and a wrong model is told by its path."""

from dataclasses import replace

import numpy as np
import pytest

from probes.base.columns import floats, ints, longs
from probes.base.errors import UsageError
from synth.fusion.model import shape, shapes

TABLE_I = {
    "resnet-50": (107, 161, 25.6),
    "densenet-201": (402, 604, 20.0),
    "inception-v4": (299, 449, 42.7),
    "bert-base": (105, 206, 110.1),
    "bert-large": (201, 398, 336.2),
}


@pytest.mark.parametrize("name", TABLE_I)
def test_layers_tensors_and_parameters_are_those_of_table_1(name):
    model = shape(name)
    assert model.problems() == []
    assert (len(model.layers), len(model.tensors)) == TABLE_I[name][:2]
    assert model.total_bytes / 4e6 == pytest.approx(TABLE_I[name][2], abs=0.05)
    np.testing.assert_allclose(model.backward_s, 2 * model.forward_s, rtol=1e-3, atol=2e-9)
    assert "not measured" in model.origin


def test_there_are_no_others():
    assert set(shapes()) == set(TABLE_I)
    with pytest.raises(UsageError, match=r"expected one of bert-base, .* found 'vgg'"):
        shape("vgg")


def test_scaled_times_keep_their_shares(samples):
    model = samples["model"].taking(18.0)
    np.testing.assert_allclose(model.forward_s, [2.0, 4.0])
    np.testing.assert_allclose(model.backward_s, [4.0, 8.0])
    np.testing.assert_allclose(model.ready_s, [12.0, 8.0])


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"forward_s": floats([1.0])}, "forward_s: expected 2 values, as many as layers"),
        ({"backward_s": floats([1.0, -1.0])}, "backward_s[1]: expected seconds from 0"),
        ({"forward_s": floats([np.nan, 1.0])}, "forward_s[0]: expected seconds from 0"),
        ({"forward_s": floats([0.0, 0.0])}, "forward_s: expected layers that take time"),
        ({"tensor_layer": ints([0, 0, 2])}, "tensor_layer[2]: there is no layer 2"),
        ({"tensor_layer": ints([0, 1, 0])}, "tensor_layer[2]: expected at least 1"),
        ({"tensor_bytes": longs([1, 0, 1])}, "tensor_bytes[1]: expected 1 to"),
        ({"tensors": ("a", "b", "a")}, "tensors: 'a' is listed twice"),
        ({"layers": (), "forward_s": floats([]), "backward_s": floats([])}, "layers: expected 1 to"),
    ],
)
def test_what_is_wrong_is_told_by_its_path(samples, change, path):
    assert any(problem.startswith(path) for problem in replace(samples["model"], **change).problems())
