"""NICs and trunks, searched on networks whose ports are known."""

import itertools

import numpy as np
import pytest

from probes.sampling.samples import Place
from probes.sharing.model import Share
from probes.sharing.nics import nic_shares
from probes.sharing.trials import (
    ACCEPT_ANY,
    MOST_TRIALS,
    Accept,
    ContentionTrials,
    Known,
    SpentError,
    attempts,
)
from probes.sharing.trunks import one_at_a_time, trunk_shares


def places(hosts, each):
    return [Place(f"h{host}", 8) for host in range(hosts) for _ in range(each)]


def links(where):
    pairs = itertools.permutations(range(len(where)), 2)
    return {pair: 1e-9 for pair in pairs if where[pair[0]].host != where[pair[1]].host}


def no_carry(wanted):
    raise AssertionError(wanted)


class Network:
    """Answers trials: a port carries ``rate`` bytes/s; a link needs what ``known`` says, else 1 ns a byte."""

    def __init__(self, ports, known=None, rate=1e9):
        self._ports, self._known, self._rate, self.asked = ports, known or {}, rate, []

    def __call__(self, trials, accept):
        self.asked += trials
        return [max(1.02, *(self._load(trial, port) for port in self._ports), 0.0) for trial in trials]

    def carry(self, wanted):
        taken_s = [length * self._known.get(pair, 1e-9) for pair, length in wanted.items()]
        through = [sum(wanted[pair] for pair in wanted if pair in port) / self._rate for port in self._ports]
        return max(taken_s + through)

    def trials(self, **made):
        return ContentionTrials(self, self.carry, **made)

    def _load(self, trial, port):
        return sum(1 / self._known.get(pair, 1e-9) for pair in trial if pair in port) / self._rate


def nics(where, groups_of):
    """The ports of NICs, in each direction, by the groups of local ranks that share one."""
    found = []
    for end in (0, 1):
        for host in {place.host for place in where}:
            ranks = [rank for rank, place in enumerate(where) if place.host == host]
            for group in groups_of:
                members = {ranks[local] for local in group}
                found.append({pair for pair in links(where) if pair[end] in members})
    return found


@pytest.mark.parametrize("hosts", [3, 5])
@pytest.mark.parametrize("groups", [[(0, 1)], [(0,), (1,)], [(0, 1), (2, 3)], [(0, 3), (1,), (2,)]])
def test_ranks_are_sorted_by_the_nic_that_they_share(hosts, groups):
    each = sum(map(len, groups))
    where = places(hosts, each)
    truth = nics(where, groups)
    network = Network(truth)
    found = nic_shares(Known(links(where), {}, where), network.trials())
    assert {frozenset(share.pairs) for share in found if share.pairs} == {frozenset(port) for port in truth}
    names = [share.name for share in found if not share.pairs]
    assert len(names) == (2 * hosts if len(groups) > 1 else 0)
    assert len(network.asked) <= 2 * hosts * (each - 1) * len(groups)


def test_hosts_with_one_rank_and_two_hosts_alone_are_not_tried():
    for where in (places(4, 1), places(2, 2)):
        network = Network([])
        assert nic_shares(Known(links(where), {}, where), network.trials()) == []
        assert network.asked == []


def test_when_trials_run_out_the_rest_stays_as_assumed():
    where = places(40, 2)
    network = Network([])
    found = nic_shares(Known(links(where), {}, where), network.trials())
    assert len(network.asked) == MOST_TRIALS
    assert len({share.name for share in found if not share.pairs}) == MOST_TRIALS


def test_without_time_nothing_is_refuted():
    where = places(3, 2)
    assert (
        nic_shares(
            Known(links(where), {}, where),
            ContentionTrials(lambda trials, accept: [float("nan")] * len(trials), no_carry),
        )
        == []
    )
    with pytest.raises(SpentError):
        ContentionTrials(lambda trials, accept: [1.0] * len(trials), no_carry, made=MOST_TRIALS).shared(
            [((0, 1), (2, 3))]
        )


def crossing(where, near, far):
    return {pair for pair in links(where) if where[pair[0]].host in near and where[pair[1]].host in far}


@pytest.mark.parametrize(("hosts", "each"), [(4, 1), (8, 1), (6, 2), (12, 1)])
def test_a_trunk_between_two_racks_is_found_both_ways(hosts, each):
    where = places(hosts, each)
    near = {f"h{host}" for host in range(hosts // 2)}
    far = {place.host for place in where} - near
    there, back = crossing(where, near, far), crossing(where, far, near)
    network = Network([there, back])
    contended = dict.fromkeys([pair for pair in there | back if (pair[1] - pair[0]) % 2 == 0], 2.0)
    found, said = trunk_shares(Known(links(where), contended, where), network.trials())
    assert {share.pairs for share in found} == {tuple(sorted(there)), tuple(sorted(back))}
    assert all(share.name.startswith("trunk h") for share in found)
    assert said == []
    assert len(network.asked) <= 3 * hosts + 2


@pytest.mark.parametrize("sizes", [(2, 5, 1), (2, 2, 2), (1, 3, 4), (3, 1, 3, 2)])
def test_every_rack_of_several_is_found(sizes):
    where = places(sum(sizes), 1)
    rack_of = {f"h{host}": rack for host, rack in enumerate(np.repeat(range(len(sizes)), sizes).tolist())}
    everyone = set(rack_of)
    ports = []
    for rack, size in enumerate(sizes):
        inside = {host for host in everyone if rack_of[host] == rack}
        if size > 1:
            ports += [crossing(where, inside, everyone - inside), crossing(where, everyone - inside, inside)]
    network = Network(ports)
    largest = max(range(len(sizes)), key=lambda rack: sizes[rack])
    seen = [pair for pair in links(where) if rack_of[f"h{pair[0]}"] == largest != rack_of[f"h{pair[1]}"]]
    found, _ = trunk_shares(Known(links(where), dict.fromkeys(seen, 2.0), where), network.trials())
    assert {frozenset(share.pairs) for share in found} == {frozenset(port) for port in ports}


def test_slow_hosts_are_tried_beside_flows_that_fill_the_trunk():
    # Two flows of 400 MB/s fit almost into a trunk of 600; one of 400 and one of 1000 do not.
    where = places(6, 1)
    there = crossing(where, {"h0", "h1", "h2"}, {"h3", "h4", "h5"})
    fast = {pair: 1 / 6e8 if pair in there else 1e-9 for pair in links(where)}
    known = {pair: 2.5e-9 if {0, 3} & set(pair) else beta for pair, beta in fast.items()}
    network = Network([there], known, rate=6e8)
    found, _ = trunk_shares(Known(known, {(1, 4): 2.0, (2, 5): 2.0}, where), network.trials())
    assert [set(share.pairs) for share in found] == [there]


def test_a_trunk_that_only_three_flows_fill_is_found_with_its_rate():
    where = places(8, 1)
    racks = {"h0", "h1", "h2", "h3"}, {"h4", "h5", "h6", "h7"}
    ports = [crossing(where, *racks), crossing(where, *racks[::-1])]
    known = dict.fromkeys(links(where), 2e-9)
    network = Network(ports, known, rate=1.1e9)
    found, said = trunk_shares(Known(known, {(0, 4): 1.5, (1, 5): 1.5}, where), network.trials())
    assert said == []
    assert {frozenset(share.pairs) for share in found} == {frozenset(port) for port in ports}
    assert [share.s_per_byte for share in found] == [pytest.approx(1 / 1.1e9)] * 2


def test_a_trunk_of_one_direction_is_found_in_that_direction():
    where = places(4, 1)
    there = crossing(where, {"h0", "h1"}, {"h2", "h3"})
    found, _ = trunk_shares(Known(links(where), {(0, 2): 2.0, (1, 3): 2.0}, where), Network([there]).trials())
    assert found == [Share("trunk h0,h1 → h2,h3", ((0, 2), (0, 3), (1, 2), (1, 3)))]


def test_a_link_that_waits_for_one_that_takes_all_is_seed_enough():
    where = places(4, 1)
    there = crossing(where, {"h0", "h1"}, {"h2", "h3"})
    found, said = trunk_shares(Known(links(where), {}, where, {(0, 2): 5.0}), Network([there]).trials())
    assert [share.pairs for share in found] == [((0, 2), (0, 3), (1, 2), (1, 3))]
    assert said == []
    assert trunk_shares(Known(links(where), {}, where, {(0, 2): 5.0}), Network([]).trials()) == ([], [])


def test_one_trial_alone_makes_no_trunk():
    where = places(4, 1)
    answers = iter([2.0])
    trials = ContentionTrials(lambda asked, accept: [next(answers, 1.0) for _ in asked], no_carry)
    assert trunk_shares(Known(links(where), {(0, 2): 2.0}, where), trials) == ([], [])


def test_contention_that_no_two_links_explain_is_told():
    where = places(4, 1)
    found, said = trunk_shares(Known(links(where), {(0, 2): 2.0, (1, 3): 1.5}, where), Network([]).trials())
    assert found == []
    assert "2 links" in said[0]
    assert "2.0 times" in said[0]


def test_without_contention_nothing_is_tried():
    where = places(6, 1)
    network = Network([])
    assert trunk_shares(Known(links(where), {}, where), network.trials()) == ([], [])
    assert network.asked == []


def test_links_through_trunks_are_measured_one_at_a_time_through_each():
    where = places(6, 1)
    near, far = {"h0", "h1", "h2"}, {"h3", "h4", "h5"}
    ways = [crossing(where, near, far), crossing(where, far, near)]
    shares = [Share(f"trunk {at}", tuple(sorted(way))) for at, way in enumerate(ways)]
    pairs = sorted(ways[0] | ways[1])
    waves = one_at_a_time(pairs, shares, where)
    assert sorted(pair for wave in waves for pair in wave) == pairs
    assert len(waves) < len(pairs)
    for wave in waves:
        assert len({rank for pair in wave for rank in pair}) == 2 * len(wave)
        assert all(len(way & set(wave)) <= 1 for way in ways)


class Wires:
    """One rank that sees all flows: those of one ``port`` take as long as they do one after the other."""

    def __init__(self, port, deadline=1 << 30, beta=1e-9):
        self._port, self._left, self._beta, self.flows = port, deadline, beta, []
        self.comm = self

    def stream(self, flows, step):
        if not self._left:
            return {}
        self._left -= 1
        self.flows.append([flow.pair for flow in flows])
        alone_s = {flow.pair: flow.train.size_bytes * flow.train.messages * self._beta for flow in flows}
        shared_s = sum(seconds for pair, seconds in alone_s.items() if pair in self._port)
        return {pair: shared_s if pair in self._port else seconds for pair, seconds in alone_s.items()}

    def waits_for_all(self, step):
        pass

    def allgather(self, mine):
        return [mine]


def test_flows_share_a_port_when_they_take_as_long_as_one_after_the_other():
    where = places(6, 1)
    wires = Wires({(0, 3), (1, 4)})
    tried = attempts(wires, Known(links(where), {}, where))
    shared, apart = ((0, 3), (1, 4)), ((0, 3), (2, 5))
    assert tried([shared], Accept()) == [pytest.approx(2.0)]
    # Both at once, each alone, and as they looked slow, both again.
    assert wires.flows == [[*shared], [(0, 3)], [(1, 4)], [*shared]]
    assert tried([apart], Accept()) == [pytest.approx(1.0)]
    assert wires.flows[4:] == [[*apart], [(0, 3)], [(2, 5)]]
    # A flow alone is not measured a third time.
    assert tried([shared], Accept()) == [pytest.approx(2.0)]
    assert wires.flows[7:] == [[*shared], [(1, 4)], [*shared]]


@pytest.mark.parametrize("accept", [ACCEPT_ANY, Accept(below=2.1), Accept(near=1.95)])
def test_an_accepted_slowdown_is_not_measured_again(accept):
    where = places(6, 1)
    shared = ((0, 3), (1, 4))
    wires = Wires({*shared})
    assert attempts(wires, Known(links(where), {}, where))([shared], accept) == [pytest.approx(2.0)]
    assert wires.flows == [[*shared], [(0, 3)], [(1, 4)]]


def test_a_slow_link_that_was_measured_alone_is_not_measured_alone_in_a_trial():
    where = places(6, 1)
    slow = dict.fromkeys(links(where), 1e-7)
    shared = ((0, 3), (1, 4))
    wires = Wires({*shared}, beta=1e-7)
    known = Known(slow, {}, where, alone=frozenset({(0, 3)}))
    assert attempts(wires, known)([shared], ACCEPT_ANY) == [pytest.approx(2.0)]
    assert wires.flows == [[*shared], [(1, 4)]]


@pytest.mark.parametrize("steps", range(4))
def test_a_trial_that_time_cuts_short_has_no_verdict(steps):
    where = places(6, 1)
    wires = Wires({(0, 3), (1, 4)}, deadline=steps)
    (found,) = attempts(wires, Known(links(where), {}, where))([((0, 3), (1, 4))], Accept())
    assert found != found
