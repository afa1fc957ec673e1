"""Element types and operators."""

import numpy as np
import pytest

from exec.program.dtypes import DTYPES, REDOPS, combine_of, decoded, divided, dtype_of, encoded, neutral_of
from probes.base import UsageError

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


@pytest.mark.parametrize("name", [name for name in DTYPES if "int" in name])
@pytest.mark.parametrize("by", [1, 2, 3, 8])
def test_integer_sums_are_divided_towards_zero_also_at_the_ends_of_their_range(name, by):
    limits = np.iinfo(dtype_of(name))
    values = [limits.min, limits.min + 1, 0, 1, 7, limits.max]
    values += [] if limits.min == 0 else [-7, -1]
    found = divided(np.array(values, dtype_of(name)), by)
    assert found.dtype == dtype_of(name)
    assert found.tolist() == [(abs(value) // by) * (1 if value >= 0 else -1) for value in values]


def test_the_eight_bytes_of_numpy_are_not_taken_for_eight_bits():
    with pytest.raises(UsageError, match="expected one of"):
        dtype_of("f8")
    with pytest.raises(UsageError, match="8 bits"):
        dtype_of("f8e4m3")
