import pytest

from probes.profiling.names import Names


@pytest.mark.parametrize(
    ("hosts", "link"),
    [("aaa", "0 → 2"), ("abc", "a → c"), ("aab", "rank 0 (a) → rank 2 (b)")],
)
def test_a_link_is_called_by_host_where_that_says_it_all(hosts, link):
    assert Names(hosts).link(0, 2) == link
