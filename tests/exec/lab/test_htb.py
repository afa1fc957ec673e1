"""The classes of a lab's interfaces, as values: no kernel is asked."""

import dataclasses

import pytest
from hypothesis import given, strategies as st
from lab_traffic import MBIT, sample_lab

from exec.lab.htb import commands, delays, port, shapes
from exec.lab.model import DEVICE, Lab, LabHost, NicRate, PairRate
from probes.base.errors import UsageError

RATES = st.none() | st.integers(1, 1000).map(lambda mbit: float(mbit * MBIT))


@st.composite
def labs(draw):
    names = "abcd"[: draw(st.integers(1, 4))]
    ends = [(src, dst) for src in names for dst in names if src != dst]
    chosen = draw(st.lists(st.sampled_from(ends), unique=True)) if ends else []
    racks = draw(st.sampled_from([(), (tuple(names[:1]), tuple(names[1:]))])) if len(names) > 1 else ()
    return Lab(
        "any",
        tuple(LabHost(name, 1, draw(RATES), draw(RATES)) for name in names),
        tuple(PairRate(src, dst, float(draw(st.integers(1, 1000)) * MBIT)) for src, dst in chosen),
        racks,
        draw(RATES) if racks else None,
    )


@given(labs())
def test_no_interface_promises_more_than_it_has(lab):
    for host in lab.hosts:
        classes = shapes(lab)[lab.namespace(host.name), DEVICE]
        leaves = [one for one in classes if one.parent]
        if host.egress_bytes_per_s is not None and leaves:
            assert sum(one.sure_bytes_per_s for one in leaves) <= host.egress_bytes_per_s * (1 + 1e-9)
            assert max(one.most_bytes_per_s for one in leaves) <= host.egress_bytes_per_s


@given(labs())
def test_what_a_path_carries_is_the_least_of_the_classes_on_it(lab):
    made = shapes(lab)
    for number, dst in enumerate(lab.hosts):
        for src in lab.hosts:
            if src is dst:
                continue
            egress = made[lab.namespace(src.name), DEVICE]
            own = [one for one in egress if one.dst == lab.address(dst.name)]
            limits = [one.most_bytes_per_s for one in own or [one for one in egress if not one.dst]]
            limits += [one.most_bytes_per_s for one in made[lab.switch, port(number)]]
            if lab.rack(src.name) != lab.rack(dst.name) and lab.trunk_bytes_per_s is not None:
                limits.append(lab.trunk_bytes_per_s)
            assert min(limits, default=None) == lab.rate_bytes_per_s(src.name, dst.name)


def test_each_nic_has_its_own_rate():
    lab = Lab(
        "any",
        (LabHost("a", 2, 9e6, 8e6), LabHost("b", 2, 9e6, 8e6)),
        nics=2,
        nic_rates=(NicRate("b", 1, 2e6, None),),
    )
    made = shapes(lab)
    most = {device: [one.most_bytes_per_s for one in classes] for device, classes in made.items()}
    assert most[lab.namespace("a"), "eth1"] == [9e6]
    assert most[lab.switch, port(0, 1)] == [8e6]
    assert most[lab.namespace("b"), "eth0"] == [9e6]
    assert most[lab.namespace("b"), "eth1"] == [2e6]
    assert most[lab.switch, port(1, 1)] == []
    assert len({lab.address(host.name, nic) for host in lab.hosts for nic in (0, 1)}) == 4


def test_pairs_and_several_nics_are_refused_together():
    hosts = (LabHost("a"), LabHost("b"))
    with pytest.raises(UsageError, match="one NIC"):
        Lab("any", hosts, (PairRate("a", "b", 1e6),), nics=2)


@given(labs())
def test_what_stays_as_it_is_costs_no_command(lab):
    assert [line for classes in shapes(lab).values() for line in commands("eth0", classes, classes)] == []


def egress(lab):
    return shapes(lab)[lab.namespace("a"), DEVICE]


def test_another_rate_changes_a_class_in_place():
    lab = sample_lab(2, pairs=[("a", "b", 10)])
    faster = dataclasses.replace(lab, pairs=(PairRate("a", "b", 20.0 * MBIT),))
    (line,) = commands("eth0", egress(lab), egress(faster))
    assert line.startswith("class change dev eth0 parent 1:1 classid 1:11 htb rate ")
    assert "ceil 20000000bit" in line


@pytest.mark.parametrize(("before", "after"), [((), ("a", "b", 10)), (("a", "b", 10), ())])
def test_another_pair_replaces_the_shape_of_its_sender_alone(before, after):
    old = sample_lab(2, pairs=[before] if before else [])
    new = dataclasses.replace(old, pairs=sample_lab(2, pairs=[after] if after else []).pairs)
    lines = {device: commands(device[1], shapes(old)[device], shapes(new)[device]) for device in shapes(old)}
    touched = [device for device, wanted in lines.items() if wanted]
    assert touched == [(old.namespace("a"), DEVICE)]
    assert lines[touched[0]][0] == "qdisc del dev eth0 root"


def test_no_limit_is_no_queue():
    lab = sample_lab(2, rate_mbit=None)
    assert set(shapes(lab).values()) == {()}
    limited = sample_lab(2)
    assert commands("eth0", egress(limited), egress(lab)) == ["qdisc del dev eth0 root"]


def test_a_delay_stands_before_the_token_buckets():
    lab = sample_lab(2, rate_mbit=8)
    classes = shapes(lab)[lab.namespace("a"), DEVICE]
    both = commands(DEVICE, (), classes, (0.0, 2e-3))
    assert both[0] == "qdisc add dev eth0 root handle 2: netem delay 2000us limit 100000"
    assert both[1] == "qdisc add dev eth0 parent 2:1 handle 1: htb default 1"
    assert commands(DEVICE, (), (), (0.0, 2e-3)) == both[:1]


def test_a_delay_changes_in_place_but_comes_and_goes_with_the_whole_shape():
    lab = sample_lab(2, rate_mbit=8)
    classes = shapes(lab)[lab.namespace("a"), DEVICE]
    changed = commands(DEVICE, classes, classes, (2e-3, 5e-3))
    assert changed == ["qdisc change dev eth0 root handle 2: netem delay 5000us limit 100000"]
    assert commands(DEVICE, classes, classes, (2e-3, 2e-3)) == []
    for delay_s in ((0.0, 2e-3), (2e-3, 0.0)):
        lines = commands(DEVICE, classes, classes, delay_s)
        assert lines[0] == "qdisc del dev eth0 root"
        assert lines[1:] == commands(DEVICE, (), classes, (0.0, delay_s[1]))
    assert commands(DEVICE, (), (), (2e-3, 0.0)) == ["qdisc del dev eth0 root"]


def test_delays_are_where_packets_leave():
    lab = Lab("any", (LabHost("a", egress_delay_s=2e-3), LabHost("b", ingress_delay_s=1e-3)), nics=2)
    assert delays(lab) == {
        (lab.namespace("a"), "eth0"): 2e-3,
        (lab.namespace("a"), "eth1"): 2e-3,
        (lab.switch, port(1, 0)): 1e-3,
        (lab.switch, port(1, 1)): 1e-3,
    }
