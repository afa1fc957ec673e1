"""The links of now are measured to the end, also where one carries nothing."""

import math
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from threaded_ranks import ThreadedRanks

from exec.adaptive import backend, links_now
from exec.adaptive.links_now import guessed_network, measured_links, steady_s, with_links, with_spares
from exec.adaptive.replanner import first_schedules
from exec.adaptive.session import Session
from exec.sockets.group import Group
from exec.sockets.mesh import Mesh
from synth.network import Link, build

KEY = bytes(range(32))
SIZE = 3


def on_all(work):
    """Return ``work(rank)`` of each rank, each run in a thread of its own."""
    found = {}
    ranks = [
        threading.Thread(target=lambda one=one: found.update({one: work(one)}), daemon=True)
        for one in range(SIZE)
    ]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join(100)
    return [found[rank] for rank in range(SIZE)]


def three_hosts():
    """Three ranks of this process that take themselves for as many hosts."""
    meeting, said = threading.Barrier(SIZE), {}

    def make(rank):
        rounds = iter(range(100))

        def exchange(mine):
            number = next(rounds)
            said[number, rank] = mine
            meeting.wait(60)
            return [said[number, one] for one in range(SIZE)]

        mesh = Mesh(rank, SIZE, exchange, KEY)
        mesh.known = [replace(where, host=where.rank) for where in mesh.known]
        return mesh

    return on_all(make)


def pairs_of(found):
    return {(link.src, link.dst): link.beta_s_per_byte for each in found for link in each}


def test_a_link_that_carries_nothing_is_infinitely_slow_and_the_others_are_measured(monkeypatch):
    monkeypatch.setattr(links_now, "_PATIENCE_S", 0.5)
    meshes = three_hosts()
    opened, cut = Mesh._opened, True

    def opened_or_not(mesh, peer, flow, limit_s, **how):
        if cut and {mesh.rank, peer} == {1, 2}:
            raise TimeoutError("does not answer")
        return opened(mesh, peer, flow, limit_s, **how)

    monkeypatch.setattr(Mesh, "_opened", opened_or_not)

    def measure(rank, severed=()):
        return measured_links(Group(meshes[rank], range(SIZE), "0"), severed)

    try:
        rates = pairs_of(on_all(measure))
        assert len(rates) == 6
        assert {pair for pair, beta in rates.items() if beta == math.inf} == {(1, 2), (2, 1)}
        assert set(pairs_of(on_all(lambda rank: measure(rank, [(1, 2)])))) == set(rates) - {(1, 2), (2, 1)}
        cut = False
        assert max(pairs_of(on_all(measure)).values()) < math.inf
    finally:
        for mesh in meshes:
            mesh.close()


def test_a_link_that_gave_no_rate_keeps_its_own():
    meshes = three_hosts()
    try:
        network = guessed_network(Group(meshes[0], range(SIZE), "0"))
        found = [links_now.LinkNow(0, 1, 1e-3, math.inf), links_now.LinkNow(1, 0, 1e-3, 1e-6)]
        after = with_links(network, found).beta_s_per_byte.tolist()
        assert sorted(after) == sorted([*network.beta_s_per_byte.tolist()[1:], 1e-6])
    finally:
        for mesh in meshes:
            mesh.close()


def test_a_session_of_some_ranks_takes_what_they_measure_for_their_own_links(monkeypatch):
    """Whatever numbers the ranks of a group have among all ranks, its network is numbered from 0."""
    some, unknown = (0, 2, 3), 7.0
    links = [Link(src, dst, 1e-5, unknown) for src in range(3) for dst in range(3) if src != dst]
    network = build("three", ["a", "b", "c"], links)
    ranks = ThreadedRanks(range(4), monkeypatch)

    def run(rank):
        if rank not in some:
            return None
        session = Session(ranks.groups[rank].among(some, "some"), network, replan_s=0.1)
        session.setup(8)
        direction, until_s = None, time.monotonic() + 60
        while True:
            assert session.all_reduce(np.ones(8, np.float32)).wait(60).tolist() == [3.0] * 8
            assert time.monotonic() < until_s
            if direction is None and session._direction is not None:
                direction = session._direction
                direction._replan = lambda: None
                direction.measure()
            now = direction._now.beta_s_per_byte if direction is not None else np.array([unknown])
            if session.gather("seen", bool((now != unknown).any()))[some[0]]:
                break
        session.close()
        return now

    try:
        rates = ranks.on_all(run)[0]
    finally:
        ranks.close()
    assert len(rates) == 6 and (rates != unknown).all()


@pytest.mark.parametrize("within_s", [1e-6, None])
def test_links_of_spares_are_guessed_from_those_of_their_kind(within_s):
    between = [Link(src, dst, 1e-4, beta, (f"{src} out",)) for src, dst, beta in ((0, 2, 1e-9), (2, 0, 3e-9))]
    within = [Link(0, 1, within_s, 1e-11), Link(1, 0, within_s, 1e-11)] if within_s else []
    known = build("some", ("a", "a", "b"), within + between)
    grown = with_spares(known, ("b", "c"))
    assert grown.hosts == ("a", "a", "b", "b", "c")
    assert grown.problems() == []
    links = {
        (int(src), int(dst)): (float(alpha_s), float(beta))
        for src, dst, alpha_s, beta in zip(
            grown.src, grown.dst, grown.alpha_s, grown.beta_s_per_byte, strict=True
        )
    }
    assert {pair for pair in links if max(pair) > 2} == {
        (src, dst) for src in range(5) for dst in range(5) if src != dst and max(src, dst) > 2
    }
    assert links[0, 2] == (1e-4, 1e-9) and links[2, 0] == (1e-4, 3e-9)
    assert links[2, 3] == ((1e-6, 1e-11) if within_s else (1e-4, 2e-9))
    assert links[4, 0] == links[3, 4] == (1e-4, 2e-9)
    ports = [grown.ports[port] for port in grown.ports_of(list(links).index((4, 0)))]
    assert ports == ["c out", "a in"]


def test_arrivals_that_are_seen_late_do_not_make_a_link_slow():
    chance = np.random.default_rng(4)
    for _ in range(200):
        count, rate_s = int(chance.integers(12, 200)), float(chance.uniform(1e-5, 1e-2))
        at_s = 5.0 + rate_s * np.arange(count)
        # The reader comes late now and then, and finds all that has come meanwhile.
        for start in chance.integers(count // 4 + 2, count, 3):
            at_s[start : start + count // 8] = np.maximum(
                at_s[start : start + count // 8], at_s[min(count - 1, start + count // 8)]
            )
        assert steady_s(at_s) == pytest.approx(rate_s, rel=0.05)


def test_what_arrives_at_once_before_the_flow_is_steady_is_left_out():
    at_s = [0.0] * 10 + [0.01 * step for step in range(30)]
    assert steady_s(at_s) == pytest.approx(0.01)


def test_two_arrivals_make_a_rate():
    assert steady_s([1.0, 1.5]) == pytest.approx(0.5)


def test_behind_the_queue_of_others_a_train_takes_some_round_trips(monkeypatch):
    meshes, asked, send, batches = three_hosts(), [], Group.Send, links_now._send_batches

    def slowly(group, data, there, tag, *rest):
        if tag == links_now._PING:
            time.sleep(0.02)
        return send(group, data, there, tag, *rest)

    def noted(group, there, target_s, deadline_s):
        asked.append(target_s)
        return batches(group, there, 0.03, deadline_s)

    monkeypatch.setattr(Group, "Send", slowly)
    monkeypatch.setattr(links_now, "_send_batches", noted)
    usual = {(src, dst): 1e-15 for src in range(SIZE) for dst in range(SIZE)}
    found = on_all(lambda rank: measured_links(Group(meshes[rank], range(SIZE), "0"), (), usual))
    for mesh in meshes:
        mesh.close()
    assert len(pairs_of(found)) == 6
    # A train each: what a long one says is not doubted, though it is slower than usual here.
    assert len(asked) == 6
    assert min(asked) >= 0.02 * links_now._ROUND_TRIPS
    assert max(asked) <= links_now._MOST_TARGET_S


def test_no_search_starts_from_schedules_of_the_epoch_before(monkeypatch):
    """A rank has an epoch's schedules only once they are made, though it has begun the epoch by then."""
    ranks, begun, made = ThreadedRanks(range(3), monkeypatch), threading.Event(), threading.Event()

    def slowly(*given):
        begun.set()
        assert made.wait(60)
        return first_schedules(*given)

    def run(rank):
        session = Session(ranks.groups[rank], guessed_network(ranks.groups[rank]), replan_s=0.1)
        session.setup(8)
        direction, until_s = session._direction, time.monotonic() + 60
        while rank == 0 and direction is None:
            assert time.monotonic() < until_s
            direction = session._direction
        settled = []
        if direction is not None:
            coordinator, direction._replan = direction.coordinator, lambda: None
            monkeypatch.setattr(backend, "first_schedules", slowly)
            direction._send(coordinator.regroup(coordinator.membership, time.monotonic()))
            while coordinator.gathering or session.epoch != 1:
                assert time.monotonic() < until_s
            assert begun.wait(60)
            settled.append(direction._is_settled())
            made.set()
            while not direction._is_settled():
                assert time.monotonic() < until_s
            settled.append(True)
        while session.epoch != 1:
            assert time.monotonic() < until_s
            time.sleep(0.01)
        session.close()
        return settled

    try:
        assert ranks.on_all(run)[0] == [False, True]
    finally:
        made.set()
        ranks.close()
