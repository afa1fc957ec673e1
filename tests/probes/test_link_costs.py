import dataclasses

import pytest
from given_profile import profile_of_links

from probes.base.columns import floats, ints
from probes.link_costs import HostCopies, HostMemory, ProfiledRank, SharedPort


def profile(**columns):
    ports = (SharedPort("rank 0 egress", (0,), "process"),)
    found = profile_of_links(("a", "a"), [(0, 1), (1, 0)], 1e-9, 1e-9, samples=1, ports=ports)
    return dataclasses.replace(found, links=dataclasses.replace(found.links, **columns))


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
        ("beta_s_per_byte", floats([5e-324, 1]), "links.beta_s_per_byte[0]"),
        ("alpha_s", floats([1, float("inf")]), "links.alpha_s[1]"),
        ("alpha_p90_s", floats([1, float("nan")]), "links.alpha_p90_s[1]"),
        ("beta_median_s_per_byte", floats([0, 1]), "links.beta_median_s_per_byte[0]"),
        ("beta_low_s_per_byte", floats([1, -1]), "links.beta_low_s_per_byte[1]"),
        ("residual", floats([-1, 0]), "links.residual[0]"),
        ("samples", ints([1, -1]), "links.samples[1]"),
        ("dst", ints([0, 0]), "links.dst[0]"),
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


def test_a_link_to_itself_and_one_that_is_there_twice_say_which_rank():
    assert profile(dst=ints([1, 1])).problems() == ["links.dst[1]: link 1 leads from rank 1 to itself"]
    twice = profile(src=ints([0, 0]), dst=ints([1, 1])).problems()
    assert twice == ["links.dst[1]: 0 → 1 is link 0 already"]


@pytest.mark.parametrize(
    ("changed", "where"),
    [
        ({"ranks": ()}, ["ranks", "links.src[0]", "links.dst[0]", "links.src[1]", "links.dst[1]"]),
        ({"seconds": float("nan")}, ["seconds"]),
        ({"rounds": -1}, ["rounds"]),
        ({"host_copies": (HostCopies(2, 1, 1, 1, 1),)}, ["host_copies[0].rank"]),
        (
            {"host_copies": (HostCopies(0, -1, 1, 1, 0),)},
            ["host_copies[0].to_device_alpha_s", "host_copies[0].to_host_beta_s_per_byte"],
        ),
        ({"ports": (SharedPort("x", (1, 1), "host"),)}, ["ports[0].links"]),
        (
            {"memory": (HostMemory("a", (2, 1), (1e-10, 0.0), (1e-10,)),)},
            ["memory[0].sizes_bytes", "memory[0].copy_s_per_byte[1]", "memory[0].add_s_per_byte"],
        ),
    ],
)
def test_what_is_beside_the_links_is_checked_too(changed, where):
    found = [problem.split(":")[0] for problem in dataclasses.replace(profile(), **changed).problems()]
    assert found == where


def test_a_profile_without_links_is_refused():
    empty = {name: ints([]) if column.dtype.kind == "i" else floats([]) for name, column in _columns()}
    assert profile(**empty, flags=()).problems()[0] == "links.src: expected at least 1 link, found none"


def _columns():
    return [(name, column) for name, column in vars(profile().links).items() if name != "flags"]
