"""A profile as pictures: the slow host stands out, and large clusters keep their slow links."""

from dataclasses import replace

import numpy as np
from slow_host import profile_with_slow_host

from ccctl.render.svg.profile import pictures
from probes.base.columns import floats

PROFILE = profile_with_slow_host()


def hosts(profile, width=960):
    return next(pictures(profile, width))


def heat_map(profile, width=960):
    return [*pictures(profile, width)][-1]


def words(drawing):
    return [part.partition(">")[2].partition("<")[0] for part in drawing.parts if part.startswith("<text")]


def labels(drawing):
    """The names at the left end of lanes."""
    ends = [part for part in drawing.parts if part.startswith("<text") and "anchor='end'" in part]
    return [part.partition(">")[2].partition("<")[0] for part in ends]


def test_the_slow_host_is_named_and_comes_first():
    drawn = hosts(PROFILE)
    assert "Slow: node3 0.452, sends slowly." in drawn.about
    assert labels(drawn)[0] == "node3"
    assert [said for said in words(drawn) if "slowly" in said] == ["0.452, sends slowly"]


def test_hosts_are_called_without_the_domain_of_all_and_long_names_are_cut():
    def renamed(pattern):
        ranks = tuple(replace(one, host=pattern.format(one.host)) for one in PROFILE.ranks)
        return labels(hosts(replace(PROFILE, ranks=ranks), 358))[0]

    assert renamed("rack17-{}.gpu.cluster-2.frankfurt.example.internal") == "rack17-node3"
    long = renamed("{}-in-rack17-of-the-cluster-in-hall-2-of-the-building-at-the-river")
    assert long.startswith("node3-in-rack17-") and long.endswith("…")


def test_a_link_without_a_sound_fit_is_not_called_slow():
    first = PROFILE.links.flags.index("")
    flags = tuple("unsound" if row == first else words for row, words in enumerate(PROFILE.links.flags))
    drawn = heat_map(replace(PROFILE, links=replace(PROFILE.links, flags=flags)), 960).parts
    assert sum("flagged as slow" in part for part in drawn if "→" in part) == 20


def test_what_was_not_measured_is_an_empty_cell_and_the_legend_says_so():
    assert not any("not measured" in part for part in heat_map(PROFILE, 960).parts)
    links = PROFILE.links
    columns = {name: getattr(links, name)[1:] for name in type(links).__dataclass_fields__}
    fewer = heat_map(replace(PROFILE, links=type(links)(**columns)), 960)
    assert any("empty: not measured" in part for part in fewer.parts)


def test_every_link_has_a_cell_and_flagged_ones_a_border():
    parts = heat_map(PROFILE, 960).parts
    assert sum("GB/s" in part for part in parts if part.startswith("<rect") and "→" in part) == 132
    flagged = sum("slow_sender" in words for words in PROFILE.links.flags)
    borders = [part for part in parts if part.startswith("<rect") and "s-alarm" in part]
    assert len(borders) == flagged == 20


def test_links_are_compared_with_those_that_are_not_flagged():
    """One of four hosts that is slow both ways has half of all links; they are not the normal value."""
    four = profile_with_slow_host(hosts=4, ranks_a_host=1)
    slow = (four.links.src == 2) | (four.links.dst == 2)
    flags = tuple(np.where(slow, "slow_sender", "").tolist())
    links = replace(four.links, flags=flags, beta_s_per_byte=floats(1 / np.where(slow, 3e9, 10e9)))
    told = [part for part in heat_map(replace(four, links=links), 960).parts if "of the median" in part]
    assert {part.partition(" GB/s, ")[2][:4] for part in told} == {"1.00", "0.30"}


def test_many_ranks_are_folded_by_host_and_the_slow_ones_stay():
    many = profile_with_slow_host(hosts=20, ranks_a_host=4, slow=7)
    drawn = heat_map(many, 960)
    cells = [part for part in drawn.parts if part.startswith("<rect") and "→" in part]
    assert len(cells) == 20 * 20
    slow = [part for part in cells if "flagged as slow" in part]
    assert {part.partition("<title>")[2].split(" ")[1] for part in slow} == {"node7"}
    assert "slowest link between two hosts" in drawn.about


def test_hosts_beyond_the_width_are_folded_into_blocks():
    many = profile_with_slow_host(hosts=60, ranks_a_host=1, slow=31)
    drawn = heat_map(many, 358)
    cells = [part for part in drawn.parts if part.startswith("<rect") and "→" in part]
    assert len(cells) <= 37 * 37
    assert any("flagged as slow" in part for part in cells)
