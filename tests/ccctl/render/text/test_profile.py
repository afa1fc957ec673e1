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
