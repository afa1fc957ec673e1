from dataclasses import replace

import numpy as np
from slow_host import profile_with_slow_host

from ccctl.render.text.profile import draw
from exec.launcher.nodeset import parse


def test_all_hosts_are_named(capsys):
    draw(profile_with_slow_host(hosts=12, ranks_a_host=1))
    names = ", ".join(f"node{number}" for number in range(1, 13))
    assert capsys.readouterr().out.startswith(f"12 ranks on 12 hosts ({names}), ")


def test_many_hosts_are_a_node_set(capsys):
    draw(profile_with_slow_host(hosts=20, ranks_a_host=1))
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("20 ranks on 20 hosts (node[1-20]), ")
    assert [one.host for one in parse("node[1-20]")] == [f"node{number}" for number in range(1, 21)]


def test_the_slowest_link_is_named_and_whether_it_is_normal(capsys):
    profile = profile_with_slow_host(hosts=6, ranks_a_host=1)
    draw(profile)
    (line,) = [one for one in capsys.readouterr().out.splitlines() if one.startswith("slowest")]
    row = int(np.argmax(profile.links.beta_s_per_byte))
    ends = [profile.ranks[int(column[row])].host for column in (profile.links.src, profile.links.dst)]
    assert line.startswith(f"slowest between hosts: {' → '.join(ends)}, ")
    flagged = replace(profile.links, flags=("slow_sender",) * len(profile.links.src))
    draw(replace(profile, links=flagged))
    assert "slower than noise explains, as are the sender's other links" in capsys.readouterr().out
