import dataclasses

import pytest

from probes.columns import floats, ints
from probes.profile import Links, Profile, ProfiledRank, SharedPort


def profile(**columns):
    ones = floats([1e-9, 1e-9])
    links = Links(
        src=ints([0, 1]),
        dst=ints([1, 0]),
        alpha_s=ones,
        alpha_median_s=ones,
        alpha_p90_s=ones,
        beta_s_per_byte=ones,
        beta_median_s_per_byte=ones,
        beta_p90_s_per_byte=ones,
        beta_low_s_per_byte=ones,
        beta_high_s_per_byte=ones,
        residual=floats([0, 0]),
        samples=ints([1, 1]),
        flags=("", ""),
    )
    return Profile(
        ranks=(ProfiledRank(0, "a"), ProfiledRank(1, "a")),
        links=dataclasses.replace(links, **columns),
        ports=(SharedPort("rank 0 egress", (0,), "process"),),
        transport="mpi",
        library="Some MPI 1.0",
        seconds=1.0,
        rounds=1,
    )


def test_a_consistent_profile_has_no_problems():
    assert profile().problems() == []


@pytest.mark.parametrize(
    ("column", "value", "where"),
    [
        ("dst", ints([1, 2]), "links.dst[1]"),
        ("src", ints([-1, 1]), "links.src[0]"),
        ("alpha_s", floats([-1, 1]), "links.alpha_s[0]"),
        ("alpha_s", floats([1, float("nan")]), "links.alpha_s[1]"),
        ("beta_s_per_byte", floats([1, 0]), "links.beta_s_per_byte[1]"),
        ("beta_s_per_byte", floats([float("inf"), 1]), "links.beta_s_per_byte[0]"),
        ("flags", ("",), "links.flags"),
    ],
)
def test_a_wrong_value_is_named_by_its_path(column, value, where):
    assert [problem.split(":")[0] for problem in profile(**{column: value}).problems()] == [where]


def test_a_port_of_no_link_and_a_rank_out_of_order_are_problems():
    wrong = dataclasses.replace(
        profile(),
        ranks=(ProfiledRank(1, "a"), ProfiledRank(0, "a")),
        ports=(SharedPort("x", (0, 5), "process"),),
    )
    assert [problem.split(":")[0] for problem in wrong.problems()] == ["ranks", "ports[0].links"]
