"""All messages of a rank's TCP ends move in order, as the counters of their connections allow."""

import socket

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from exec.program import Wire
from exec.sockets import FAILED, NOTHING, serve_ends
from exec.sockets.descriptors import close_flow
from exec.sockets.tcp_ends import MOVED, TcpEnds


def a_wire(outgoing, contents, *, depth=4, early=(), traced=False):
    """One end of a connection that carries these bytes, or has room for them."""
    messages = [np.frombuffer(content, np.uint8).copy() for content in contents]
    if not outgoing:
        messages = [np.zeros_like(message) for message in messages]
    frees = tuple(number in early for number in range(len(contents)))
    times = np.zeros(len(contents) * traced, np.int64)
    return Wire(outgoing, 1, 0, np.zeros(2, np.int64), messages, depth, frees, times)


@pytest.fixture
def pair():
    left, right = socket.socketpair()
    with left, right:
        left.setblocking(False)
        right.setblocking(False)
        yield left, right


def joined(pair, contents, **how):
    """The two ends of a connection, with their wires."""
    wires = [a_wire(outgoing, contents, **how) for outgoing in (True, False)]
    return wires, [TcpEnds([wire], [end]) for wire, end in zip(wires, pair, strict=True)]


def written(wire, count):
    wire.counters[0] = count


def read(wire, count):
    wire.counters[1] = count


@given(
    st.lists(st.integers(0, 300_000), min_size=1, max_size=12),
    st.integers(1, 4),
    st.sets(st.integers(0, 11)),
    st.integers(1, 3),
    st.integers(0, 2**32 - 1),
)
@settings(deadline=None, max_examples=40)
def test_messages_arrive_whole_and_in_order(sizes, depth, early, runs, seed):
    chance = np.random.default_rng(seed)
    contents = [chance.bytes(size) for size in sizes]
    left, right = socket.socketpair()
    with left, right:
        left.setblocking(False)
        right.setblocking(False)
        (out, into), ends = joined((left, right), contents, depth=depth, early=early)
        for run in range(runs):
            base = run * len(sizes)
            for each in ends:
                each.begin(run)
            for message in into.messages:
                message[:] = 0
            while min(into.counters[1], out.counters[1]) < base + len(sizes):
                states = [serve_ends(each.at, 0) for each in ends]
                assert FAILED not in states
                arrived, taken = int(into.counters[0]), int(into.counters[1])
                # A message that is not early waits for its slot.
                for number in range(max(taken + depth, base), arrived):
                    assert number - base in early or number - base < depth
                if states == [NOTHING, NOTHING]:
                    if out.counters[0] < base + len(sizes) and (arrived == taken or chance.random() < 0.5):
                        written(out, int(out.counters[0]) + 1)
                    elif arrived > taken:
                        read(into, taken + 1)
            assert [bytes(message) for message in into.messages] == contents
            assert out.counters.tolist() == into.counters.tolist() == [base + len(sizes)] * 2
        assert [each.bytes_moved(0) for each in ends] == [runs * sum(sizes)] * 2


def test_a_connection_that_ends_is_named_after_what_it_carried(pair):
    (out, into), (sends, takes) = joined(pair, [b"a" * 100, b"b" * 100])
    for each in (sends, takes):
        each.begin(0)
    written(out, 1)
    assert serve_ends(sends.at, 0) == MOVED
    close_flow(pair[0])
    assert serve_ends(takes.at, 0) == FAILED
    assert into.counters[0] == 1
    assert serve_ends(takes.at, 0) == FAILED
    peer, error = takes.failure()
    assert (peer, str(error)) == (1, "closed its connection")


def test_a_descriptor_that_is_used_again_is_left_alone(pair):
    """Another thread closes connections, for instance to a rank that was started again."""
    _, (_, takes) = joined(pair, [b"a" * 100])
    takes.begin(0)
    number = pair[1].fileno()
    close_flow(pair[1])
    other, far = socket.socketpair()
    with other, far:
        assert other.fileno() == number
        far.send(b"b" * 100)
        assert serve_ends(takes.at, 0) == FAILED
        assert other.recv(200) == b"b" * 100


def test_an_error_of_the_system_is_named(pair):
    (out, _), (sends, _) = joined(pair, [b"a" * 100])
    sends.begin(0)
    written(out, 1)
    close_flow(pair[1])
    assert serve_ends(sends.at, 0) == FAILED
    assert isinstance(sends.failure()[1], BrokenPipeError)


def test_waiting_ends_with_data_or_with_its_time(pair):
    (out, _), (sends, takes) = joined(pair, [b"a" * 100])
    for each in (sends, takes):
        each.begin(0)
    assert serve_ends(takes.at, 1) == NOTHING
    written(out, 1)
    assert serve_ends(sends.at, 60_000) == serve_ends(takes.at, 60_000) == MOVED


def test_only_ends_that_could_move_are_waiting(pair):
    (out, into), (sends, takes) = joined(pair, [b"a", b"b"], depth=1)
    for each in (sends, takes):
        each.begin(0)
    assert (sends.waiting(), takes.waiting()) == ([], [0])
    written(out, 2)
    serve_ends(sends.at, 0)
    serve_ends(takes.at, 0)
    # The second message has no slot until the first is read.
    assert (into.counters[0], takes.waiting()) == (1, [])
    read(into, 1)
    assert takes.waiting() == [0]


def test_messages_are_left_out_and_moved_to_other_memory(pair):
    (out, into), ends = joined(pair, [b"aaaa", b"bb", b"cc"])
    mask = np.array([True, False, False])
    elsewhere = [np.zeros_like(message) for message in into.messages]
    number = {message.ctypes.data: at for at, message in enumerate(into.messages)}
    ends[1].move_to(lambda message: elsewhere[number[message.ctypes.data]])
    for run, left_out in enumerate((mask, None)):
        for each, outgoing in zip(ends, (True, False), strict=True):
            each.leave_out({(outgoing, 1, 0): left_out} if left_out is not None else {})
            each.begin(run)
        written(out, 3 * (run + 1))
        read(into, 3 * run)
        assert [serve_ends(each.at, 0) for each in ends] == [MOVED, MOVED]
        assert into.counters[0] == 3 * (run + 1)
        found = [bytes(message) for message in elsewhere]
        assert found == [b"\0" * 4 if run == 0 else b"aaaa", b"bb", b"cc"]
    assert not any(message.any() for message in into.messages)


def test_times_of_messages_are_kept(pair):
    (out, into), ends = joined(pair, [b"a", b"", b"c"], traced=True)
    for each in ends:
        each.begin(0)
    written(out, 3)
    for each in ends:
        serve_ends(each.at, 0)
    times_ns = [*out.through_ns.tolist(), *into.through_ns.tolist()]
    assert times_ns == sorted(times_ns)
    assert times_ns[0] > 0
