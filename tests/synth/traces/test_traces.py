"""Traces say what a schedule says: played again, each message leaves and arrives when the simulator says."""

import json
import re
from collections import defaultdict
from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest
from drawn_examples import drawn
from hypothesis import assume, given, settings, strategies as st
from sample_networks import named, networks

from probes.base.columns import bytes_of, floats, ints
from probes.link_costs import HostMemory
from synth.collective import Collective, collective
from synth.errors import NotApplicableError
from synth.methods import forest, greedy, paths, ring
from synth.network import Link, build
from synth.schedules import COPY, REDUCE, Schedule
from synth.simulation.schedule import replay
from synth.traces import ADD, RECV, SEND, astra_sim_files, goal_text, operations_of
from synth.traces.chakra import messages

KINDS = ["all_gather", "reduce_scatter", "all_reduce", "all_to_all", "broadcast"]


def played(schedule, operations):
    """When each operation of each rank ends if no message waits for a link: data dependencies alone."""
    network = schedule.network
    travel_s = {}
    for link in schedule.link.tolist():
        pair = int(network.src[link]), int(network.dst[link])
        travel_s[pair] = float(network.travel_s(schedule.chunk_bytes)[link])
    ended, sent = [[None] * len(each) for each in operations], {}
    left = [(rank, at) for rank, each in enumerate(operations) for at in range(len(each))]
    while left:
        waiting = []
        for rank, at in left:
            one = operations[rank][at]
            before = [ended[rank][other] for other in one.after]
            if None in before or (one.kind == RECV and (one.peer, rank, one.tag) not in sent):
                waiting.append((rank, at))
                continue
            time_s = max([0.0, *before])
            if one.kind == SEND:
                assert (rank, one.peer, one.tag) not in sent
                sent[rank, one.peer, one.tag] = time_s + travel_s[rank, one.peer]
            elif one.kind == RECV:
                time_s = max(time_s, sent[one.peer, rank, one.tag])
            ended[rank][at] = time_s
        assert len(waiting) < len(left), "operations wait for each other"
        left = waiting
    return max((time for each in ended for time in each), default=0.0)


@settings(max_examples=drawn(40), deadline=None)
@given(networks(), st.sampled_from(KINDS), st.integers(1, 3), st.booleans())
def test_operations_wait_for_their_data_and_for_nothing_else(network, kind, chunks, trees):
    """Played so, the last arrives when the simulator says, where each send has a link of its own."""
    shape = collective(kind, network.ranks, chunks)
    try:
        schedule = (forest if trees else paths).synthesize(network, shape, 1000)
    except NotApplicableError:
        assume(False)
    operations = operations_of(schedule)
    counted = [one.kind for each in operations for one in each]
    assert counted.count(SEND) == counted.count(RECV) == schedule.sends
    assert counted.count(ADD) == int(schedule.op.sum())
    # Each send on a link of its own, so that nothing queues.
    free = replace(
        network,
        src=ints(network.src[schedule.link]),
        dst=ints(network.dst[schedule.link]),
        alpha_s=network.travel_s(1000)[schedule.link],
        beta_s_per_byte=np.full(schedule.sends, 1e-30),
        ports=(),
        link_port_start=ints(np.zeros(schedule.sends + 1)),
        link_port=ints([]),
        port_beta_s_per_byte=floats([]),
        queues=False,
        hold_alpha=False,
    )
    apart = replace(schedule, network=free, link=ints(np.arange(schedule.sends)), stream=ints([]))
    assume(len({(a, b) for a, b in zip(network.src, network.dst, strict=True)}) == network.links)
    assert played(schedule, operations) == pytest.approx(replay(apart).time_s, rel=1e-9)


def by_hand(rows, links, kind="reduce", **options):
    """(chunk, link, op) of each send."""
    chunk, link, op = zip(*rows, strict=True)
    ranks = 1 + max(max(each.src, each.dst) for each in links)
    network = replace(build("hand", [f"h{rank}" for rank in range(ranks)], links), **options)
    return Schedule(
        network, Collective(kind, ranks, 1), 1000, "hand", 0, ints(chunk), ints(link), bytes_of(op)
    )


STAR = [Link(1, 0, 0, 1e-9), Link(2, 0, 0, 1e-9), Link(0, 1, 0, 1e-9), Link(0, 2, 0, 1e-9)]
SUM_AND_BACK = [(0, 0, REDUCE), (0, 1, REDUCE), (0, 2, COPY), (0, 3, COPY)]


def test_sums_of_one_chunk_follow_each_other_and_what_is_passed_on_follows_them():
    operations = operations_of(by_hand(SUM_AND_BACK, STAR, "all_reduce"))
    assert [(one.kind, one.after) for one in operations[0]] == [
        (RECV, ()),
        (ADD, (0,)),
        (RECV, ()),
        (ADD, (1, 2)),
        (SEND, (3,)),
        (SEND, (3,)),
    ]
    assert [one.kind for one in operations[1]] == [SEND, RECV]


def test_goal_of_a_sum():
    memory = HostMemory("h0", (100, 10_000), (1e-10, 1e-10), (2e-10, 2e-10))
    text = goal_text(by_hand(SUM_AND_BACK, STAR, "all_reduce", memory=(memory,)))
    assert text.splitlines()[:13] == [
        "num_ranks 3",
        "",
        "rank 0 {",
        "l0: recv 1000b from 1 tag 0",
        "l1: calc 200",
        "l1 requires l0",
        "l2: recv 1000b from 2 tag 0",
        "l3: calc 200",
        "l3 requires l1",
        "l3 requires l2",
        "l4: send 1000b to 1 tag 0",
        "l4 requires l3",
        "l5: send 1000b to 2 tag 0",
    ]


# The grammar of txt2bin.re, LogGOPSim's reader, as far as it is used.
GOAL_LINES = re.compile(
    r"num_ranks \d+|rank \d+ \{|\}|"
    r"|[a-zA-Z]\w*: (?:calc \d+|send \d+b to \d+ tag \d+|recv \d+b from \d+ tag \d+)"
    r"|[a-zA-Z]\w* requires [a-zA-Z]\w*"
)


@pytest.mark.parametrize("kind", KINDS)
def test_goal_is_in_the_grammar_of_its_reader(kind):
    network = named("mesh")
    text = goal_text(paths.synthesize(network, collective(kind, network.ranks, 2), 4096))
    labels = set()
    for line in text.split("\n"):
        assert GOAL_LINES.fullmatch(line), line
        if line.startswith("rank "):
            labels = set()
        elif " requires " in line:
            # Labels are looked up as they are read.
            assert set(line.split(" requires ")) <= labels
        elif ":" in line:
            labels.add(line.partition(":")[0])


def decoded(content):
    """The metadata and the nodes of a trace, by the schema of mlc-chakra where that is installed."""
    from google.protobuf.proto import parse_length_prefixed

    try:
        from chakra.schema.protobuf.et_def_pb2 import GlobalMetadata, Node
    except ImportError:
        GlobalMetadata, Node = messages()  # noqa: N806 - classes
    file = BytesIO(content)
    metadata, nodes = parse_length_prefixed(GlobalMetadata, file), []
    while (node := parse_length_prefixed(Node, file)) is not None:
        nodes.append(node)
    return metadata, nodes


def attributes(node):
    return {one.name: (one.WhichOneof("value"), getattr(one, one.WhichOneof("value"))) for one in node.attr}


def test_a_trace_is_read_back_as_the_operations_that_it_was_written_of():
    pytest.importorskip("google.protobuf")
    network = named("mesh")
    schedule = greedy.synthesize(network, collective("all_reduce", network.ranks, 3), 4096)
    contents = astra_sim_files(schedule).contents
    for rank, operations in enumerate(operations_of(schedule)):
        metadata, nodes = decoded(contents[f"collective.{rank}.et"])
        assert metadata.version == "0.0.4"
        assert [node.id for node in nodes] == list(range(len(operations)))
        for node, operation in zip(nodes, operations, strict=True):
            assert tuple(node.data_deps) == operation.after
            values = attributes(node)
            assert values.pop("is_cpu_op") == ("bool_val", False)
            number = {ADD: 4, SEND: 5, RECV: 6}[operation.kind]
            assert node.type == number
            if operation.kind == ADD:
                assert values == {}
                continue
            end = "comm_dst" if operation.kind == SEND else "comm_src"
            assert values == {
                "comm_type": ("int64_val", number),
                "comm_size": ("int64_val", 4096),
                end: ("int32_val", operation.peer),
                "comm_tag": ("int32_val", operation.tag),
            }


def test_what_a_trace_says_in_bytes():
    """The wire format, byte by byte: a reader of another protobuf library sees the same."""
    pytest.importorskip("google.protobuf")
    contents = astra_sim_files(by_hand([(0, 0, COPY)], [Link(0, 1, 0, 1e-9)], "broadcast")).contents
    attributes = (
        b"\x52\x0d\x0a\x09comm_type\x48\x05"
        b"\x52\x0e\x0a\x09comm_size\x48\xe8\x07"
        b"\x52\x0c\x0a\x08comm_dst\x38\x01"
        b"\x52\x0c\x0a\x08comm_tag\x38\x00"
        b"\x52\x0e\x0a\x09is_cpu_op\xd8\x01\x00"
    )
    node = b"\x12\x0csend to 1, 0" + b"\x18\x05" + attributes
    assert contents["collective.0.et"] == b"\x07\x0a\x050.0.4" + bytes([len(node)]) + node


def test_workload_and_system_name_the_collective():
    pytest.importorskip("google.protobuf")
    network = named("ring of 5")
    schedule = ring.synthesize(network, collective("reduce_scatter", 5, 1), 1 << 20)
    contents = astra_sim_files(schedule).contents
    system = json.loads(contents["system.json"])
    assert system["reduce-scatter-implementation-custom"] == ["collective"]
    assert system["preferred-dataset-splits"] == 1
    for rank in range(5):
        (node,) = decoded(contents[f"workload.{rank}.et"])[1]
        assert node.type == 7
        assert attributes(node)["comm_type"] == ("int64_val", 7)
        assert attributes(node)["comm_size"] == ("int64_val", 5 << 20)


def test_of_other_collectives_there_are_only_traces():
    pytest.importorskip("google.protobuf")
    network = named("ring of 5")
    written = astra_sim_files(greedy.synthesize(network, collective("broadcast", 5, 1), 1000))
    assert "system.json" not in written.contents
    assert any("no implementation of broadcast" in caution for caution in written.cautions)


def network_file(network):
    pytest.importorskip("google.protobuf")
    written = astra_sim_files(greedy.synthesize(network, collective("all_gather", network.ranks, 1), 1000))
    return {name: text.decode() for name, text in written.contents.items() if name.startswith("network.")}


@pytest.mark.parametrize(
    ("name", "shape"), [("ring of 5", "Ring"), ("fully connected", "FullyConnected"), ("switch", "Switch")]
)
def test_networks_of_one_dimension_are_analytical_ones(name, shape):
    network = named(name)
    told = dict(line.split(": ") for line in network_file(network)["network.yml"].splitlines())
    value = {key: text.strip("[ ]") for key, text in told.items()}
    assert (value["topology"], int(value["npus_count"])) == (shape, network.ranks)
    # Its GB are GiB.
    assert float(value["bandwidth"]) * (1 << 30) * network.beta_s_per_byte[0] == pytest.approx(1)
    hops = 2 if shape == "Switch" else 1
    assert float(value["latency"]) * hops == pytest.approx(network.alpha_s[0] * 1e9)


def test_a_mesh_is_a_list_of_links_for_ns3():
    network = named("uneven mesh")
    lines = network_file(network)["network.txt"].splitlines()
    assert lines[0] == f"{network.ranks} 0 {network.links // 2}"
    told = defaultdict(tuple)
    for line in lines[2:]:
        src, dst, rate, alpha, errors = line.split()
        told[int(src), int(dst)] = float(rate.removesuffix("Gbps")), float(alpha.removesuffix("ms"))
        assert errors == "0"
    assert len(told) == network.links // 2
    for (src, dst), (gbps, alpha_ms) in told.items():
        (link,) = np.flatnonzero((network.src == src) & (network.dst == dst))
        assert gbps * 1e9 / 8 * network.beta_s_per_byte[link] == pytest.approx(1)
        assert alpha_ms == pytest.approx(network.alpha_s[link] * 1e3)


@pytest.mark.parametrize("name", ["hosts of two", "fat tree"])
def test_shared_ports_have_no_file(name):
    assert network_file(named(name)) == {}


def test_links_that_differ_by_direction_have_no_file():
    links = [Link(0, 1, 0, 1e-9), Link(1, 0, 0, 2e-9), Link(1, 2, 0, 1e-9), Link(2, 1, 0, 1e-9)]
    assert network_file(build("line", ["a", "b", "c"], links)) == {}
