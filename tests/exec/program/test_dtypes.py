"""Element types and operators."""

import numpy as np
import pytest

from exec.program.dtypes import DTYPES, REDOPS, combine_of, decoded, dtype_of, encoded, neutral_of

ODD = (0.0, -0.0, 1.5, -3.0, np.inf, -np.inf, np.nan, 6e-5)


@pytest.mark.parametrize("redop", REDOPS)
@pytest.mark.parametrize("name", DTYPES)
def test_the_neutral_element_leaves_all_others_as_they_are_to_the_last_bit(redop, name):
    dtype = dtype_of(name)
    real = name == "bfloat16" or dtype.kind == "f"
    if real:
        values = encoded(np.array(ODD), dtype)
    else:
        limits = np.iinfo(dtype)
        values = np.array([0, 1, 7, limits.min, limits.max], dtype)
    neutral = neutral_of(redop, dtype)
    assert neutral.shape == (1,) and neutral.dtype == dtype
    combine, every = combine_of(redop, dtype), np.repeat(neutral, len(values))
    for found in (combine(values, every), combine(every, values)):
        numbers = decoded(values) == decoded(values)
        assert found[numbers].tobytes() == values[numbers].tobytes()
        assert (np.isnan(decoded(found[~numbers]))).all()
