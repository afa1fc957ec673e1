"""Plans of the fabric, in three formats."""

import copy
import json

import pytest
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st

from exec.acceptance import read_plan
from probes.base import DataError


def read(text):
    return read_plan(text.encode() if isinstance(text, str) else text, "plan")


def problems_of(text):
    with pytest.raises(DataError) as refused:
        read(text)
    return list(refused.value.problems)


def server(name="server", **more):
    nics = {"name": "nic", "count": 2, "choice": "nic"}
    return {"name": name, "components": [{"name": "xpu", "count": 2, "choice": "xpu"}, nics]} | more


SWITCH = {
    "name": "switch",
    "components": [
        {"name": "asic", "count": 1, "choice": "cpu"},
        {"name": "port", "count": 16, "choice": "port"},
    ],
}


def edge(one, other, link="leaf", scheme="one2one"):
    (instance, component), (its_instance, its_component) = one.split("/"), other.split("/")
    return {
        "ep1": {"instance": instance, "component": component},
        "ep2": {"instance": its_instance, "component": its_component},
        "scheme": scheme,
        "link": link,
    }


def clos(**more):
    """Four hosts on two leaf switches, each with 400 and 200 Gbit/s to two spines."""
    edges = [edge(f"host[{at}]/nic", f"leaf[{at // 2}]/port[{2 * (at % 2)}:]") for at in range(4)]
    edges += [
        edge(f"leaf[{leaf}]/port[{8 + spine}]", f"spine[{spine}]/port[{leaf}]", ("fast", "slow")[spine])
        for leaf in range(2)
        for spine in range(2)
    ]
    return {
        "name": "clos",
        "devices": [server(), SWITCH],
        "links": [
            {"name": "leaf", "physical": {"bandwidth": {"choice": "gigabits_per_second"}}},
            {"name": "fast", "physical": {"bandwidth": {"gigabits_per_second": 400}}},
            {"name": "slow", "physical": {"bandwidth": {"gigabytes_per_second": 25}}},
        ],
        "instances": [
            {"name": "host", "device": "server", "count": 4},
            {"name": "leaf", "device": "switch", "count": 2},
            {"name": "spine", "device": "switch", "count": 2},
        ],
        "edges": edges,
    } | more


def test_toml_with_lists():
    plan = read(
        'racks = ["gpu[01-02]", ["gpu03", "gpu[04-05]"]]\ntrunk = "400Gbit/s"\nrails = ["mlx5_0", "mlx5_1"]'
    )
    assert plan.racks == {"rack1": ("gpu01", "gpu02"), "rack2": ("gpu03", "gpu04", "gpu05")}
    assert plan.trunk_bytes_per_s == 50e9
    assert plan.rails["gpu04", "mlx5_1"] == 1
    assert len(plan.rails) == 10
    assert plan.rack_of("gpu05") == "rack2"


def test_toml_with_tables():
    plan = read(
        '[racks]\nleaf-a = "gpu[1-2]"\nleaf-b = ["gpu3"]\n'
        '[rails]\nmlx5_0 = 0\nmlx5_1 = 1\n"gpu[2-3] mlx5_1" = 3\n"gpu3 ens1" = 2\n'
    )
    assert plan.racks == {"leaf-a": ("gpu1", "gpu2"), "leaf-b": ("gpu3",)}
    assert plan.trunk_bytes_per_s is None
    assert plan.rails["gpu1", "mlx5_1"] == 1
    assert plan.rails["gpu3", "mlx5_1"] == plan.rails["gpu2", "mlx5_1"] == 3
    assert plan.rails["gpu3", "ens1"] == 2


def test_rails_of_named_hosts_need_no_racks():
    assert read('[rails]\n"gpu[1-2] ib0" = 0').rails == {("gpu1", "ib0"): 0, ("gpu2", "ib0"): 0}


def test_every_problem_of_a_toml_plan_is_told_at_once():
    found = problems_of(
        'rack = 3\ntrunk = 400\nracks = ["gpu[1-", [7], [], "gpu[1-2]", "gpu2:8", "gpu2"]\n'
        '[rails]\nmlx5_0 = -1\nmlx5_1 = "x"\n"a b c" = 1\n"gpu[9 ib0" = 2\n'
    )
    paths = [problem.partition(":")[0] for problem in found]
    assert paths == [
        "rack",
        "racks[0]",
        "racks[1][0]",
        "racks[2]",
        "racks[4]",
        "racks[5]",
        "rails.mlx5_0",
        "rails.mlx5_1",
        "rails.'a b c'",
        "rails.'gpu[9 ib0'",
        "trunk",
    ]
    assert "gpu2 is in 'rack4' already" in found[5]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected racks or rails, found neither"),
        ("trunk = '1Gbit/s'", "expected racks or rails, found neither"),
        ("racks = 'gpu1'", "racks: expected a list or a table"),
        ("rails = ['ib0']", "expected racks, or hosts before the NIC"),
        ("rails = 3\nracks = ['a']", "rails: expected a list of NICs or a table"),
        ("racks = ['gpu[1-99999999]']", "more than 65536"),
        ("racks = ['a']\nracks = ['b']", "expected TOML"),
        ("- topology: default\n  tree:\n", "found YAML"),
        ("---\nkey: 1\n", "found YAML"),
        ("# racks\ntopology:\n", "found YAML"),
        (b"\xff\xfe", "UTF-8"),
        (b"racks = ['a']" + b" " * (16 << 20), "at most 16 MiB"),
    ],
)
def test_what_is_no_plan(text, said):
    assert said in problems_of(text)[0]


def test_leaves_of_a_tree_of_switches_are_racks():
    plan = read(
        "# Switches\nSwitchName=s0 Nodes=tux[0-2] LinkSpeed=100\n"
        "switchname = s1 nodes=tux[3-4],\\\ntux9\nSwitchName=s2 Switches=s[0-1]  # spine\n"
    )
    assert plan.racks == {"s0": ("tux0", "tux1", "tux2"), "s1": ("tux3", "tux4", "tux9")}


def test_blocks_are_racks():
    plan = read("BlockName=b1 Nodes=n[01-18]\nBlockName=b2 Nodes=n[19-36]\nBlockSizes=18\n")
    assert {name: len(hosts) for name, hosts in plan.racks.items()} == {"b1": 18, "b2": 18}


def test_every_problem_of_a_topology_is_told_with_its_line():
    found = problems_of(
        "SwitchName=s0 Nodes=tux[0-\nSwitchName=s1 Switches=s[0-1],s9\nSwitchName=s1 Nodes=a\n"
        "SwitchName=s3\nSwitchName=s4 Colour=red\nInclude other.conf\nSwitchName=s5 Nodes=a\n"
    )
    lines = sorted(problem.partition(":")[0] for problem in found)
    assert lines == ["line 1", "line 2", "line 3", "line 4", "line 5", "line 6", "line 7"]
    assert any("there is no switch 's9'" in problem for problem in found)
    assert any("'s1' is defined twice" in problem for problem in found)


def test_an_infragraph_gives_racks_and_the_trunk():
    plan = read(json.dumps(clos()))
    assert plan.racks == {"leaf0": ("host0", "host1"), "leaf1": ("host2", "host3")}
    assert plan.trunk_bytes_per_s == 75e9
    assert read(json.dumps({"infrastructure": clos()})) == plan


def test_hosts_with_the_same_rails_are_one_rack():
    every = [edge(f"host[{at}]/nic[{nic}]", f"leaf[{nic}]/port[{at}]") for at in range(4) for nic in range(2)]
    plan = read(json.dumps(clos(edges=every)))
    assert plan.racks == {"leaf0+leaf1": ("host0", "host1", "host2", "host3")}
    assert plan.trunk_bytes_per_s is None


def test_devices_within_devices_and_names_that_end_in_digits():
    tray = {"name": "tray", "components": [{"name": "server", "count": 1, "choice": "device"}]}
    graph = clos(
        devices=[server(), tray, SWITCH],
        instances=[
            {"name": "gb200", "device": "tray", "count": 2},
            {"name": "leaf", "device": "switch", "count": 1},
        ],
        edges=[edge("gb200/server.nic[0]", "leaf/port[0:2]", scheme="many2many")],
    )
    assert read(json.dumps(graph)).racks == {"leaf": ("gb200.0", "gb200.1")}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"edges": [edge("nobody/nic", "leaf/port")]},
            "edges[0].ep1.instance: there is no instance 'nobody'",
        ),
        ({"edges": [edge("host/gpu", "leaf/port")]}, "edges[0].ep1.component: device 'server' has no"),
        ({"edges": [edge("host[4]/nic", "leaf/port")]}, "expected numbers below 4, found 'host[4]'"),
        ({"edges": [edge("host/nic", "leaf/port", scheme="ring")]}, "edges[0].scheme: expected one2one"),
        ({"edges": [{}]}, "edges[0].ep1: expected an instance"),
        ({"edges": [3]}, "edges[0]: expected an object"),
        ({"edges": {}}, "edges: expected a list"),
        ({"edges": []}, "edges: expected edges from hosts to switches"),
        ({"devices": [{"name": 3}, SWITCH]}, "devices[0].name: expected a name"),
        ({"instances": [{"name": "host", "device": "none", "count": 1}]}, "there is no device 'none'"),
        ({"instances": [{"name": "host", "device": "server", "count": -1}]}, "instances[0].count: expected"),
    ],
)
def test_a_wrong_infragraph_says_where(change, said):
    assert any(said in problem for problem in problems_of(json.dumps(clos(**change))))


def test_edges_without_end_are_refused():
    devices = [server(), SWITCH | {"components": [{"name": "port", "count": 1 << 19, "choice": "port"}]}]
    many = {"devices": devices, "edges": [edge("host/nic", "leaf/port", scheme="many2many")] * 3}
    assert any("at most" in problem for problem in problems_of(json.dumps(clos(**many))))


KEYS = [
    *("racks", "trunk", "rails", "devices", "instances", "links", "edges", "name", "count", "ep1", "ep2"),
    *("instance", "component", "components", "device", "scheme", "physical", "bandwidth"),
]
junk = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 1 << 80) | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=drawn(100))
@given(junk, st.sampled_from(["devices", "instances", "links", "edges", "infrastructure", "name"]))
def test_no_json_crashes(value, key):
    for document in ({key: value}, clos() | {key: value}, {"edges": value, "devices": value}):
        try:
            read(json.dumps(document))
        except DataError:
            continue


@settings(max_examples=drawn(100))
@given(st.data())
def test_a_changed_infragraph_is_read_or_refused(data):
    """Replace one value anywhere in a sound graph."""
    document = copy.deepcopy(clos())
    place: object = document
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if isinstance(place[key], dict | list) and place[key] and data.draw(st.booleans()):
            place = place[key]
            continue
        place[key] = data.draw(junk)
        break
    try:
        plan = read(json.dumps(document))
    except DataError:
        return
    assert all(isinstance(host, str) for hosts in plan.racks.values() for host in hosts)


@settings(max_examples=drawn(100))
@given(
    st.binary(max_size=60)
    | st.text(max_size=60).map(str.encode)
    | st.from_regex(
        r"(SwitchName|BlockName|racks|rails|trunk)( ?= ?|\.a=|:)[\[\"a-z0-9\],= \n\\#-]{0,40}"
        r"(Nodes=a\[[0-9-]{0,4}\]?)?"
    ).map(str.encode)
)
def test_no_content_crashes(content):
    try:
        plan = read_plan(content, "plan")
    except DataError:
        return
    assert plan.racks or plan.rails
