"""Schedules of phases 1 and 2: the checker proves them, and their collectives are what they should be."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from drawn_examples import drawn
from hypothesis import HealthCheck, given, settings, strategies as st
from sample_networks import named, networks
from sample_schedules import complete, random_schedule, ring_all_reduce, schedule_of

from ccctl.artifacts import codec
from probes.base.errors import UsageError
from synth.check.schedule import check
from synth.collective import KINDS, collective, several
from synth.errors import NotApplicableError
from synth.methods import forest, greedy, paths
from synth.network import Link, build
from synth.portfolio.attempts import METHODS
from synth.portfolio.rank_subsets import serve
from synth.relays.chunk_trees import chunk_trees
from synth.relays.partial import (
    WAYS,
    fastest_late_phase,
    late_phase,
    late_schedule,
    partial_phase,
    partial_schedule,
)
from synth.relays.pieces import cut
from synth.schedules import COPY, REDUCE
from synth.simulation.schedule import replay


def sets(of):
    """The ranks of each chunk."""
    return [set(of.of(chunk).tolist()) for chunk in range(len(of.group))]


def judge_partial(schedule, active):
    """The partial schedule of an active set is proven, and asks for what it should."""
    phase = partial_phase(schedule, active)
    whole, part = schedule.collective, phase.schedule.collective
    assert check(phase.schedule) == []
    contributors = [sources & active for sources in sets(whole.sources)]
    assert phase.chunk.tolist() == [chunk for chunk, sources in enumerate(contributors) if sources]
    assert sets(part.sources) == [contributors[chunk] for chunk in phase.chunk]
    assert sets(part.targets) == [sets(whole.targets)[chunk] for chunk in phase.chunk]
    assert part.reduced.tolist() == whole.reduced[phase.chunk].tolist()
    return phase.schedule


def judge_joining(schedule, active):
    """Late ranks may add to what they receive on its way to the root; the sends stay the same."""
    without = partial_phase(schedule, active).schedule
    phase = partial_phase(schedule, active, late_may_join=True)
    made, whole = phase.schedule, schedule.collective
    assert check(made) == []
    for name in ("chunk", "link", "op"):
        assert getattr(made, name).tolist() == getattr(without, name).tolist()
    src, dst = (made.network.src[made.link], made.network.dst[made.link])
    ready, every = sets(without.collective.sources), sets(made.collective.sources)
    for chunk, reduced in enumerate(made.collective.reduced.tolist()):
        own, held, adding = made.chunk == chunk, set(ready[chunk]), set()
        for one, other in zip(src[own].tolist(), dst[own].tolist(), strict=True):
            # A rank that holds a part of the sum and passes it on has received it.
            assert one in held
            held.add(other)
        adding = every[chunk] - ready[chunk]
        assert adding <= sets(whole.sources)[phase.chunk[chunk]] - active
        assert reduced or not adding
        begins = {one for one in src[own].tolist()} - {*dst[own].tolist()}
        assert not begins & adding


def judge_copies(schedule, late):
    phase = late_phase(schedule, late, "copy")
    whole, part = schedule.collective, phase.schedule.collective
    assert check(phase.schedule) == []
    assert not part.reduces
    expected = sorted(
        (rank, chunk) for chunk, sources in enumerate(sets(whole.sources)) for rank in sources & late
    )
    owners = part.source_of().tolist()
    assert list(zip(owners, phase.chunk.tolist(), strict=True)) == expected
    assert sets(part.targets) == [sets(whole.targets)[chunk] for chunk in phase.chunk]


def holders(schedule, ranks):
    return set(schedule.collective.sources.rank.tolist()) & ranks


@settings(max_examples=drawn(60))
@given(data=st.data(), kind=st.sampled_from(KINDS), ranks=st.integers(2, 7), seed=st.integers(0, 1 << 30))
def test_every_active_set_of_random_trees_is_proven(data, kind, ranks, seed):
    schedule = random_schedule(kind, ranks, 2, seed)
    active = data.draw(st.sets(st.integers(0, schedule.network.ranks - 1)))
    if not any(tree.sources & active for tree in chunk_trees(schedule)):
        with pytest.raises(UsageError, match="expected a rank with data"):
            partial_schedule(schedule, active)
        return
    judge_partial(schedule, active)
    judge_joining(schedule, active)
    judge_copies(schedule, active)


def serve_all(network, kind):
    """The schedules of all methods that serve a kind on a network without a solver."""
    shape = collective(kind, network.ranks, 2, root=network.ranks - 1)
    others = (greedy.synthesize, paths.synthesize)
    for method in METHODS.values():
        if method.solves or method.exchanges:
            continue
        try:
            yield serve(
                method.synthesize, network, shape, 1 << 16, relays=method.relays, others=others, seed=0
            )
        except NotApplicableError:
            continue


@settings(max_examples=drawn(25), suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), network=networks(6), kind=st.sampled_from(KINDS))
def test_every_method_makes_trees_that_relays_can_use(data, network, kind):
    active = data.draw(st.sets(st.integers(0, network.ranks - 1), min_size=1))
    late = set(range(network.ranks)) - active
    for schedule in serve_all(network, kind):
        for ranks, judge in ((active, judge_partial), (late, judge_copies)):
            if any(tree.sources & ranks for tree in chunk_trees(schedule)):
                judge(schedule, ranks)


@pytest.mark.parametrize("kind", ["all_reduce", "all_to_all"])
def test_adapcc_makes_trees_and_paths(kind):
    network = named("hosts of two")
    shape = collective(kind, network.ranks, 8 if kind == "all_reduce" else 1)
    schedule = METHODS["adapcc"].synthesize(network, shape, 1 << 16, time_limit_s=2.0)
    judge_partial(schedule, {0, 3, 5})
    judge_copies(schedule, {1, 2})


def test_a_subset_of_the_ranks_has_relays_that_never_contribute():
    network = named("line of 4")
    shape = collective("all_reduce", 4, 2, members=[0, 3])
    schedule = paths.synthesize(network, shape, 1 << 16)
    judge_partial(schedule, {3})
    with pytest.raises(UsageError, match="take part"):
        partial_schedule(schedule, {1, 3})


def test_several_collectives_at_once():
    network = complete(3)
    both = several([collective("all_reduce", 3, 1), collective("all_to_all", 3, 1)])
    sends = [(0, 1, 0, REDUCE), (0, 2, 0, REDUCE), (0, 0, 1, COPY), (0, 0, 2, COPY)]
    sends += [(1 + 3 * src + dst, src, dst, COPY) for src in range(3) for dst in range(3) if src != dst]
    schedule = schedule_of(network, both, sends)
    for active in ({0}, {1, 2}):
        judge_partial(schedule, active)
        judge_copies(schedule, active)


def test_with_all_ranks_it_is_the_schedule_itself():
    ring = ring_all_reduce(4)
    assert partial_schedule(ring, range(4)) is ring


def test_the_result_of_a_sum_goes_to_relays_too():
    part = partial_schedule(ring_all_reduce(4), {1, 2})
    assert sets(part.collective.targets) == [{0, 1, 2, 3}] * 4
    assert sets(part.collective.sources) == [{1, 2}] * 4


def test_branches_without_data_are_left_out():
    # 3 → 2 → 1 → 0: with 1 alone only its own send is left of the sum.
    sends = [(0, rank, rank - 1, REDUCE) for rank in (3, 2, 1)]
    schedule = schedule_of(complete(4), collective("reduce", 4, 1, root=0), sends)
    assert partial_schedule(schedule, {1}).sends == 1
    assert partial_schedule(schedule, {3}).sends == 3


def test_nobody_ready_is_refused():
    ring = ring_all_reduce(4)
    for ranks in ([], ()):
        with pytest.raises(UsageError, match=r"active: expected a rank with data of the all_reduce"):
            partial_schedule(ring, ranks)
        with pytest.raises(UsageError, match=r"late: expected a rank with data"):
            late_schedule(ring, ranks, "copy")
    with pytest.raises(UsageError, match="way: expected sum or copy"):
        late_schedule(ring, [0], "shout")


def test_the_same_on_every_rank():
    made = []
    for order in ([1, 5, 2], [5, 2, 1]):
        ring = ring_all_reduce(6, 2)
        phases = [partial_phase(ring, order), *(late_phase(ring, order, way) for way in WAYS)]
        for phase in phases:
            one = phase.schedule
            sets = one.collective.custom
            columns = [one.chunk, one.link, one.op, phase.chunk, sets.source, sets.target, sets.reduced]
            columns += [sets.group_start, sets.group_rank]
            made.append([column.tobytes() for column in columns])
    assert made[:3] == made[3:]


def test_the_faster_way_is_the_one_of_the_shorter_simulation():
    # 3 → 2 → 1 → 0 and back: what rank 3 brings passes all on its way up.
    sends = [(0, rank, rank - 1, REDUCE) for rank in (3, 2, 1)]
    sends += [(0, rank, rank + 1, COPY) for rank in range(3)]
    chain = schedule_of(complete(4), collective("all_reduce", 4, 1), sends)
    # The sum of five ranks is much smaller than all their data.
    ring = replace(ring_all_reduce(8, 2), chunk_bytes=1 << 20)
    for schedule, late, fastest in ((chain, {3}, "copy"), (ring, {1, 2, 3, 4, 5}, "sum")):
        time_s = {way: replay(late_schedule(schedule, late, way)).time_s for way in WAYS}
        found = replay(fastest_late_phase([schedule], late).schedule)
        assert found.time_s == time_s[fastest]
        assert all(time_s[fastest] < time_s[way] for way in WAYS if way != fastest)


def test_late_data_keep_away_from_trees_that_load_a_link_twice():
    # Chains round a ring: a sum of two late ranks goes through that whose root is late.
    ring = cut(replace(ring_all_reduce(6), chunk_bytes=1 << 20), 16)
    whole_s = replay(ring).time_s
    assert replay(late_schedule(ring, {5}, "copy")).time_s < 0.7 * whole_s
    assert replay(late_schedule(ring, {4, 5}, "sum")).time_s < 0.7 * whole_s


def test_the_fastest_of_several_schedules():
    coarse = replace(ring_all_reduce(4), chunk_bytes=1 << 20)
    bases = [coarse, cut(coarse, 8)]
    for late in ({0}, {1, 2}, {0, 2, 3}):
        phase = fastest_late_phase(bases, late)
        assert check(phase.schedule) == []
        assert replay(phase.schedule).time_s == min(
            replay(late_schedule(base, late, way)).time_s for base in bases for way in WAYS
        )


@pytest.mark.parametrize("kind", KINDS)
def test_pieces_are_the_same_schedule_in_finer_chunks(kind):
    schedule = random_schedule(kind, 4, 2, seed=9)
    fine = cut(schedule, 4)
    assert check(fine) == []
    assert fine.collective.same_but_for_chunks(schedule.collective)
    assert fine.collective.total_bytes(fine.chunk_bytes) == schedule.collective.total_bytes(1024)
    assert cut(schedule, 1) is schedule
    judge_partial(fine, {0, 1})
    with pytest.raises(UsageError, match="pieces: expected a divisor of the 1024 bytes"):
        cut(schedule, 3)


def test_streams_stay_streams_in_phases_and_pieces():
    links = [
        Link(a, b, 2e-5, 1e-8 if 2 in (a, b) else 4e-9, (f"{a} out", f"{b} in"))
        for a, b in permutations(range(4), 2)
    ]
    network = replace(build("uneven", [f"h{rank}" for rank in range(4)], links), queues=True)
    schedule = forest.synthesize(network, collective("all_reduce", 4, 24), 1 << 12)
    assert len(schedule.stream)
    fine = cut(schedule, 4)
    assert check(fine) == []
    for one in (schedule, fine):
        for made in (
            judge_partial(one, {0, 2}),
            late_schedule(one, {1}, "sum"),
            late_schedule(one, {1}, "copy"),
        ):
            assert check(made) == []
            assert len(made.stream) == made.sends


def test_pieces_of_a_custom_collective():
    part = partial_schedule(ring_all_reduce(4), {0, 2})
    fine = cut(part, 2)
    assert check(fine) == []
    assert sets(fine.collective.sources) == [{0, 2}] * 8


def test_a_partial_schedule_is_an_artifact(tmp_path):
    part = partial_schedule(ring_all_reduce(4), {0, 2})
    path = str(tmp_path / "part.json")
    codec.write(path, "schedule", part)
    back = codec.read(path, "schedule").body
    assert check(back) == []
    assert np.array_equal(back.chunk, part.chunk)
