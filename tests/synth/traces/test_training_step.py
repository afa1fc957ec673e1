"""A training step's collectives, as its Chakra traces tell: ranks, sizes, starts, and traces that hang."""

from io import BytesIO

import pytest

pytest.importorskip("google.protobuf")

from google.protobuf.proto import serialize_length_prefixed

from probes.base.errors import UsageError
from synth.traces import busiest, trace_nodes, traced_collectives
from synth.traces.chakra import chakra_trace, messages
from synth.traces.operations import ADD, RECV, SEND, TraceOperation

COMPUTE, COLLECTIVE = 4, 7
ALL_REDUCE, ALL_GATHER, BARRIER = 0, 2, 9


def trace(*nodes, inputs=""):
    """The nodes of (type, nodes before, microseconds, attributes), and a metadata node with ``inputs``."""
    made, file = messages(), BytesIO()
    serialize_length_prefixed(made.metadata(version="0.0.4"), file)
    if inputs:
        node = made.node(id=99, name="process_group:init", type=1)
        node.inputs.values = inputs
        serialize_length_prefixed(node, file)
    for at, (kind, before, micros, values) in enumerate(nodes):
        node = made.node(id=at, name=f"node {at}", type=kind, data_deps=before, duration_micros=micros)
        for name, value in values.items():
            field = {str: "string_val", int: "int64_val"}[type(value)]
            node.attr.add(name=name, **{field: value})
        serialize_length_prefixed(node, file)
    return trace_nodes(file.getvalue())


def reduced(before, size=100, group="", kind=ALL_REDUCE):
    return (COLLECTIVE, before, 0, {"comm_type": kind, "comm_size": size, "pg_name": group})


def walked(traces, groups=(), seconds=1e-3):
    """(kind, ranks, bytes, start in microseconds) of each collective."""
    ranks = max(traces) + 1
    found = traced_collectives(traces, dict(groups), ranks, lambda one: seconds)
    return [(one.kind, one.ranks, one.size_bytes, round(one.start_s * 1e6)) for one in found]


def test_a_collective_starts_when_the_last_of_its_ranks_has_computed():
    early = trace((COMPUTE, [], 10, {}), reduced([0]))
    late = trace((COMPUTE, [], 30, {}), (COMPUTE, [], 40, {}), reduced([0, 1]))
    assert walked({0: early, 1: late}) == [("all_reduce", (0, 1), 100, 70)]


def test_collectives_of_a_group_follow_each_other_and_groups_overlap():
    groups = {"a": [0, 1], "b": [2, 3]}
    twice = [trace(reduced([], group="a"), reduced([], 200, "a")) for _ in range(2)]
    gathered = [trace(reduced([], group="b", kind=ALL_GATHER)) for _ in range(2)]
    assert walked(dict(enumerate(twice + gathered)), groups) == [
        ("all_reduce", (0, 1), 100, 0),
        ("all_gather", (2, 3), 200, 0),
        ("all_reduce", (0, 1), 200, 1000),
    ]


def test_messages_and_barriers_hold_up_what_depends_on_them():
    sender = chakra_trace([TraceOperation(ADD, -1, 0, -1, (), 2e-3), TraceOperation(SEND, 1, 64, 7, (0,))])
    taker = chakra_trace([TraceOperation(RECV, 0, 64, 7, ()), TraceOperation(SEND, 0, 64, 8, (0,))])
    back = chakra_trace(
        [
            TraceOperation(ADD, -1, 0, -1, (), 2e-3),
            TraceOperation(SEND, 1, 64, 7, (0,)),
            TraceOperation(RECV, 1, 64, 8, ()),
        ]
    )
    traces = {0: trace_nodes(back), 1: trace_nodes(taker)}
    assert walked(traces) == [("broadcast", (0, 1), 64, 2000), ("broadcast", (1, 0), 64, 3000)]
    with pytest.raises(UsageError, match="rank 1 waits"):
        walked({0: trace_nodes(sender), 1: trace_nodes(taker)})
    slow = trace((COMPUTE, [], 50, {}), reduced([0], 0, kind=BARRIER))
    quick = trace(reduced([], 0, kind=BARRIER), reduced([0], group="pair"))
    both = {0: slow, 1: quick, 2: quick}
    assert walked(both, {"pair": [1, 2]}) == [("all_reduce", (1, 2), 100, 50)]


def test_process_groups_come_from_the_trace_itself():
    listed = """['[{"pg_name": "7", "pg_desc": "data", "ranks": [1, 2]}, {"pg_name": "0", "ranks": []}]']"""
    plain = trace(reduced([], group="0"), inputs=listed)
    member = trace(reduced([], group="7"), reduced([0], group="0"), inputs=listed)
    assert [one[:2] for one in walked({0: plain, 1: member, 2: member})] == [
        ("all_reduce", (1, 2)),
        ("all_reduce", (0, 1, 2)),
    ]


def test_ranks_without_a_trace_are_ready():
    assert walked({1: trace(reduced([], group="a"))}, {"a": [0, 1]}) == [("all_reduce", (0, 1), 100, 0)]


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([reduced([], group="none")], "in group 'none'"),
        ([reduced([], kind=77)], "comm_type, found 77"),
        ([(COLLECTIVE, [], 0, {"comm_type": ALL_REDUCE})], "comm_size in bytes, found None"),
        ([(5, [], 0, {"comm_size": 8})], "another rank as comm_src or comm_dst"),
        ([reduced([1]), (COMPUTE, [0], 1, {})], "waits for itself"),
    ],
)
def test_a_wrong_node_is_named(nodes, message):
    with pytest.raises(UsageError, match=message):
        walked({0: trace(*nodes), 1: trace()})


def test_ranks_that_wait_for_different_collectives_are_named():
    with pytest.raises(UsageError, match=r"rank 0 waits in node 0 .* for rank 1"):
        walked({0: trace(reduced([])), 1: trace(reduced([], 200))})


@pytest.mark.parametrize("content", [b"", b"\xff\xff\xff", b"no trace at all"])
def test_other_files_are_refused(content):
    with pytest.raises(UsageError, match="expected a Chakra trace"):
        trace_nodes(content)


def test_the_busiest_window_moves_most_data():
    traces = {rank: trace(*(reduced([], size) for size in (5, 9, 8, 1))) for rank in range(2)}
    found = traced_collectives(traces, {}, 2, lambda one: 1.0)
    assert sorted(one.size_bytes for one in busiest(found, 2)) == [8, 9]
    assert len(busiest(found, 9)) == 4
