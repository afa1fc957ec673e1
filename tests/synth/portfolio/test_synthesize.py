from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace

import pytest
from measured_host import measured_host
from sample_networks import NAMED, named

from probes.base.errors import UsageError
from synth import Request, synthesize
from synth.check.schedule import check
from synth.collective import KINDS
from synth.errors import NotApplicableError
from synth.networks.families import family
from synth.prediction.run_time import is_clearly_sooner, schedule_run_s
from synth.simulation.schedule import replay

# The kinds by turns, and in long runs an all_reduce on every second network.
PAIRS = [(name, KINDS[at % len(KINDS)]) for at, name in enumerate(NAMED)]
OTHERS = [(name, "all_reduce") for name in [*NAMED][::2] if (name, "all_reduce") not in PAIRS]


@pytest.mark.parametrize(
    ("name", "kind"), [*PAIRS, *(pytest.param(*pair, marks=pytest.mark.long) for pair in OTHERS)]
)
def test_the_portfolio_keeps_the_fastest_and_proves_it(name, kind):
    network = named(name)
    size_bytes = 1 << 20 if network.ranks <= 8 else 1 << 14
    found = synthesize(Request(network, kind, size_bytes=size_bytes, solving=network.ranks <= 5))
    schedule, outcome = found.schedule, found.schedule.outcome
    assert check(schedule) == []
    assert outcome.time_s == replay(schedule).time_s
    for tried in found.attempts:
        if tried.time_s is not None and tried.sends <= schedule.sends:
            assert outcome.time_s <= tried.time_s * (1 + 1e-9)
        elif tried.time_s is not None:
            # Finer chunks may be faster, but by less than each doubling of the sends must gain.
            gained = 0.01 * math.log2(tried.sends / schedule.sends)
            assert outcome.time_s * (1 - gained) <= tried.time_s
    assert 0 < outcome.percent_of_optimal <= 100
    total = schedule.collective.total_bytes(schedule.chunk_bytes)
    assert size_bytes <= total < size_bytes + schedule.collective.chunks


@pytest.mark.parametrize(
    ("spec", "bandwidth", "least"),
    [
        ("mesh:4x4", [50e9], 100 - 1e-6),
        pytest.param("mesh:10x10", [50e9], 100 - 1e-6, marks=pytest.mark.long),
        pytest.param("torus:5x5x5", [50e9], 99.5, marks=pytest.mark.long),
        pytest.param("hypercube:64", [50e9], 99.5, marks=pytest.mark.long),
        ("ring:16", [50e9], 100 - 1e-6),
        pytest.param("mesh:10x10", [50e9, 25e9], 99.5, marks=pytest.mark.long),
        ("switch:16", [50e9], 99.9),
        pytest.param("rfs:2x4x8", [200e9, 100e9, 50e9], 88, marks=pytest.mark.long),
        pytest.param("rfs:2x4x16", [200e9, 100e9, 50e9], 93, marks=pytest.mark.long),
    ],
)
def test_all_gather_of_one_chunk_a_rank_is_near_optimal(spec, bandwidth, least):
    network = family(spec, [5e-7], bandwidth)
    found = synthesize(Request(network, "all_gather", chunk_bytes=1 << 20))
    assert found.schedule.outcome.percent_of_optimal >= least


def test_the_same_seed_gives_the_same_bytes():
    request = Request(named("hosts of two"), "all_reduce", size_bytes=1 << 20, seed=3)
    first, again = synthesize(request).schedule, synthesize(request).schedule
    assert first.link.tolist() == again.link.tolist()
    assert first.chunk.tolist() == again.chunk.tolist()
    assert first.outcome == again.outcome
    assert first.seed == 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"method": "magic"}, "unknown method"),
        ({"method": "tree", "kind": "all_gather"}, "tree does not serve"),
        ({"method": "ring"}, "cycle through all ranks"),
        ({"root": 9, "kind": "broadcast"}, "no rank 9"),
    ],
)
def test_refuses_and_says_why(change, words):
    asked = {"network": named("line of 4"), "kind": "all_reduce", "size_bytes": 4096, **change}
    with pytest.raises(UsageError, match=words):
        synthesize(Request(**asked))


def test_a_fixed_chunk_is_kept():
    found = synthesize(Request(named("mesh"), "all_gather", chunk_bytes=5000, chunks=3))
    assert found.schedule.chunk_bytes == 5000
    assert found.schedule.collective.chunks == 3 * 12


@pytest.mark.parametrize(("ranks", "size_bytes"), [(2, 1 << 20), (3, 1 << 24), (4, 1 << 12), (4, 1 << 24)])
def test_on_one_host_no_method_by_name_is_predicted_clearly_sooner_than_what_is_chosen(ranks, size_bytes):
    """The bound of links is met by an exchange of the whole buffer, which ranks take longer to copy."""
    request = Request(measured_host(ranks), "all_reduce", size_bytes=size_bytes, solving=False)
    chosen_s = schedule_run_s(synthesize(request).schedule)
    for method in ("exchange", "ring", "direct", "all_pairs", "halving_doubling", "tree", "greedy"):
        with suppress(NotApplicableError, UsageError):
            other = synthesize(replace(request, method=method)).schedule
            assert not is_clearly_sooner(schedule_run_s(other), chosen_s), method


def test_a_bound_of_links_ends_the_search_only_where_links_decide():
    network = measured_host()
    request = Request(network, "all_reduce", size_bytes=1 << 24, solving=False)
    by_links = synthesize(replace(request, predicted=False))
    predicted = synthesize(request)
    assert by_links.why == "it reaches the bound" and len(by_links.attempts) == 1
    assert len(predicted.attempts) > 5
    assert is_clearly_sooner(schedule_run_s(predicted.schedule), schedule_run_s(by_links.schedule))
    assert not check(predicted.schedule)


def test_the_prediction_decides_only_of_all_methods_and_where_ranks_were_measured():
    asked = Request(measured_host(), "all_reduce", size_bytes=1 << 20)
    assert asked.decided_by_prediction
    assert not replace(asked, method="ring").decided_by_prediction
    assert not replace(asked, network=replace(asked.network, measured=False)).decided_by_prediction
    assert replace(asked, method="ring", predicted=True).decided_by_prediction
