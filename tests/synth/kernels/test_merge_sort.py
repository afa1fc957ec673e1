"""The sort of compiled loops."""

import numpy as np
from hypothesis import given, strategies as st

from probes.base import floats
from synth.kernels import argsorted


@given(st.lists(st.sampled_from([0.0, -1.5, 2.0, 7.0, np.inf]) | st.floats(allow_nan=False), max_size=70))
def test_it_sorts_as_numpy_does_and_keeps_equal_keys_in_their_order(keys):
    assert argsorted(floats(keys)).tolist() == np.argsort(floats(keys), kind="stable").tolist()
