import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, strategies as st

from probes.profiling.instances import Instances
from probes.sampling.rounds import waves
from probes.sampling.samples import Place


def cluster(hosts, ranks, nics, kinds=1):
    """Ranks that share the NICs of their host evenly; NICs are of so many kinds in turn."""
    return [
        Place(f"h{host}", 64, "process", f"nic{nic}", f"kind {nic % kinds}")
        for host in range(hosts)
        for rank in range(ranks)
        for nic in [rank * nics // ranks]
    ]


def measured(instances, true):
    """Return what the rounds measure of the costs in ``true``."""
    return {pair: true(*pair) for pairs in instances.between() for pair in pairs}


@given(
    st.integers(2, 9), st.sampled_from([(8, 1), (8, 2), (8, 4), (8, 8), (4, 2), (1, 1)]), st.integers(1, 2)
)
def test_hosts_meet_in_their_number_less_one_of_rounds_a_class(hosts, shape, kinds):
    ranks, nics = shape
    places = cluster(hosts, ranks, nics, min(kinds, nics))
    rounds = Instances(places).between()
    assert len(rounds) == (hosts - 1) * min(kinds, nics)
    for pairs in rounds:
        for end in (0, 1):
            used = Counter((places[pair[end]].host, places[pair[end]].nic) for pair in pairs)
            assert len(used) == hosts * nics
            assert set(used.values()) == {1}
    met = {(places[a].host, places[b].host) for pairs in rounds for a, b in pairs}
    assert len(met) == hosts * (hosts - 1)


def test_a_nic_with_several_ranks_sends_and_receives_at_once():
    places = cluster(4, 8, 2)
    for pairs in Instances(places).between():
        nic_of = [place.nic for place in places]
        cut = waves(pairs, [place.host for place in places], {place.host: 64 for place in places}, nic_of)
        assert len(cut) == 1


def test_links_within_hosts_come_first_and_are_all_measured():
    places = [*cluster(3, 4, 2), Place("h3", 8), Place("h3", 8)]
    inside = [pair for pairs in Instances(places).inside() for pair in pairs]
    assert sorted(inside) == [
        pair for pair in itertools.permutations(range(14), 2) if places[pair[0]].host == places[pair[1]].host
    ]
    assert Instances(places).rounds()[: len(Instances(places).inside())] == Instances(places).inside()


@pytest.mark.parametrize("nics", [1, 2, 4, 8])
def test_a_slow_nic_and_a_slow_way_between_two_hosts_are_inferred_for_all_their_links(nics):
    places = cluster(8, 8, nics)

    def true(src, dst):
        a, b = places[src], places[dst]
        slow_nic = 1 / 0.6 if (a.host, a.nic) == ("h3", "nic0") else 1.0
        return 1e-10 * max(slow_nic, 2.0 if (a.host, b.host) == ("h5", "h1") else 1.0)

    instances = Instances(places)
    beta = measured(instances, true)
    spread = instances.spread(beta)
    assert not spread.apart
    assert not spread.notes
    beta |= {pair: true(*pair) for pair in spread.more}
    stand_in = instances.inferred(beta)
    between = [p for p in itertools.permutations(range(64), 2) if places[p[0]].host != places[p[1]].host]
    assert sorted([*beta, *stand_in]) == between
    for pair, other in stand_in.items():
        assert beta[other] == pytest.approx(true(*pair))


def test_ranks_of_one_nic_that_differ_are_measured_one_by_one():
    places = cluster(8, 4, 1)

    def true(src, dst):
        return 3e-10 if src == 9 else 1e-10

    instances = Instances(places)
    beta = measured(instances, true)
    spread = instances.spread(beta)
    assert spread.apart == {8, 9, 10, 11}
    assert len(spread.notes) == 1
    assert "of h2 share one NIC as declared" in spread.notes[0]
    beta |= {pair: true(*pair) for pair in spread.more}
    for pair, other in Instances(places, spread.apart).inferred(beta).items():
        assert beta[other] == true(*pair)


def test_rails_that_are_joined_poorly_are_told_and_measured():
    places = cluster(6, 4, 4)

    def true(src, dst):
        return 1e-10 if places[src].nic == places[dst].nic else 1.5e-10

    instances = Instances(places)
    beta = measured(instances, true)
    spread = instances.spread(beta)
    assert "differ by up to 1.50 times" in spread.notes[0]
    beta |= {pair: true(*pair) for pair in spread.more}
    for pair, other in instances.inferred(beta).items():
        assert beta[other] == true(*pair)
    assert len(beta) + len(instances.inferred(beta)) == 24 * 20


def test_noise_alone_breaks_no_class():
    rng = np.random.default_rng(7)
    places = cluster(16, 8, 4)
    instances = Instances(places)
    beta = measured(instances, lambda src, dst: 1e-10 * float(np.exp(abs(rng.normal(0, 0.02)))))
    assert instances.spread(beta).more == ()


def test_hosts_of_which_nothing_is_declared_have_one_nic():
    places = [Place(f"h{rank // 2}", 8) for rank in range(6)]
    instances = Instances(places)
    assert len(instances.between()) == 2
    beta = measured(instances, lambda src, dst: 1e-10)
    assert len(beta) + len(instances.inferred(beta)) == 24
