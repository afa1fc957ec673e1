import numpy as np
from hypothesis import given, strategies as st

from probes.localization.groups import quantiles, upper_median


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(-5, 5)), min_size=1), st.sampled_from([0.0, 0.5, 1.0]))
def test_each_group_has_the_quantile_of_its_values(rows, share):
    labels, values = (np.array(column) for column in zip(*rows, strict=True))
    found = quantiles(labels, values, 5, share)
    for group in range(5):
        mine = values[labels == group]
        if len(mine):
            assert found[group] == np.quantile(mine, share, method="higher")
        else:
            assert np.isnan(found[group])


def test_of_an_even_number_the_larger_middle_value_is_the_median():
    assert upper_median(np.array([1.0, 4.0, 2.0, np.nan, 3.0])) == 3.0
