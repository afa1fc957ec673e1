"""Schedules that a runtime can load: within its limits, proven, and as near to the bound as those allow."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from probes.base import UsageError
from synth import Request, Synthesis, synthesize
from synth.check import check, judge
from synth.collective import Kind, collective
from synth.compiler import lower
from synth.methods import direct, greedy, nvls
from synth.msccl import TARGETS, beyond, read_xml, write_xml
from synth.mscclpp import examine_plan
from synth.network import Network
from synth.networks import family, pod
from synth.portfolio import MOST_PLAN_OPERATIONS, RUNTIMES, early_limit, loadable
from synth.portfolio.loadable import loadable_among
from synth.portfolio.plain import fastest_plain
from synth.portfolio.runtime_limits import chunk_limit
from synth.portfolio.runtime_variants import variant_of_schedule, variants_of
from synth.schedules import Schedule, Selection
from synth.simulation import replay

SIZE_BYTES = 1 << 16
# The smallest machine with a name; two of them are 8 ranks.
HOSTS = "l40s:2"


def _request(runtime: str, network: str = HOSTS, size_bytes: int = SIZE_BYTES) -> Request:
    return Request(pod(network), "all_gather", size_bytes=size_bytes, jobs=0, runtime=runtime)


@cache
def _searched(network: str, size_bytes: int) -> tuple[Synthesis, list[Schedule]]:
    """The search does not depend on the runtime, so one serves all tests of a network and a size."""
    kept: list[Schedule] = []
    return fastest_plain(_request("", network, size_bytes), keep=kept.append), kept


def _found(runtime: str, network: str = HOSTS, size_bytes: int = SIZE_BYTES) -> Synthesis:
    """Return what `synthesize` finds."""
    return loadable_among(_request(runtime, network, size_bytes), *_searched(network, size_bytes))


@pytest.fixture
def few_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare few schedules, in few instances: all of them take ten times as long."""
    monkeypatch.setattr(loadable, "_MOST_RUN", 1)
    monkeypatch.setattr(loadable, "INSTANCES", (1, 2))


def test_the_runtime_changes_nothing_in_the_search() -> None:
    found, other = synthesize(_request("msccl", "dgx-a100:1")), _found("msccl", "dgx-a100:1")
    assert found.listed.outcome == other.listed.outcome
    assert found.loaded is not None and other.loaded is not None
    assert write_xml(found.loaded.program) == write_xml(other.loaded.program)


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.usefixtures("few_runs")
def test_what_is_found_loads_and_is_proven(runtime: str) -> None:
    found = _found(runtime)
    assert found.loaded is not None
    assert found.loaded.runtime == runtime
    assert check(found.schedule) == []
    assert judge(found.loaded.program) == []
    if runtime == "mscclpp":
        assert found.loaded.plan is not None
        assert examine_plan(found.loaded.plan).findings == ()
        assert found.loaded.plan.operations <= MOST_PLAN_OPERATIONS
    else:
        assert beyond(found.loaded.program, runtime) == []
        assert read_xml(write_xml(found.loaded.program), "again").steps == found.loaded.program.steps
    outcome = found.listed.outcome
    assert outcome is not None
    assert outcome.percent_of_optimal <= found.loaded.links_percent + 1e-9
    assert found.loaded.links_percent <= found.loaded.unrestricted_percent + 1e-9


def test_what_loads_is_no_nearer_to_the_bound_than_the_best_of_all() -> None:
    """Also if the search prefers another schedule to the fastest over links."""
    request = replace(_request("msccl", "dgx-a100:1"), runtime="")
    slow, fast = (synthesize(replace(request, method=method)) for method in ("ring", "direct"))
    assert fast.listed.outcome is not None and slow.listed.outcome is not None
    assert fast.listed.outcome.time_s < slow.listed.outcome.time_s
    wanted = replace(request, runtime="msccl")
    found = loadable_among(wanted, slow, [slow.listed, fast.listed]).loaded
    assert found is not None
    assert found.unrestricted_percent == pytest.approx(fast.listed.outcome.percent_of_optimal)


@pytest.mark.parametrize(("chunks", "loads"), [(4, True), (16, False)])
def test_without_fused_instructions_fewer_threadblocks_are_enough(
    monkeypatch: pytest.MonkeyPatch, chunks: int, loads: bool
) -> None:
    """Only with few chunks: else a threadblock has too many steps, and the fused program's limit is named."""
    monkeypatch.setitem(TARGETS, "rccl", replace(TARGETS["rccl"], threadblocks=30))
    network = pod("dgx-a100:2")
    schedule = greedy.synthesize(network, collective("all_gather", network.ranks, chunks), SIZE_BYTES)
    limit = beyond(lower(schedule), "rccl", network.multiprocessors)[0]
    assert "threadblocks" in limit
    made, told = variant_of_schedule(schedule, "rccl")
    assert (made is not None, told) == (loads, "" if loads else limit)
    if made is not None:
        assert made.findings == []
        assert beyond(made.program, "rccl", network.multiprocessors) == []


@pytest.mark.parametrize(
    ("kind", "runtime"), [("all_gather", "rccl"), ("reduce_scatter", "rccl"), ("all_to_all", "msccl")]
)
def test_where_the_search_ends_with_direct_sends_to_many_peers_another_schedule_loads(
    kind: Kind, runtime: str
) -> None:
    """RCCL has 64 threadblocks, too few for 39 peers; MSCCL has enough, but takes 32 peers a channel."""
    network = replace(family("switch:40", [1e-6], [1e9]), multiprocessors=132)
    found = synthesize(Request(network, kind, size_bytes=1 << 20, jobs=0, runtime=runtime))
    assert found.loaded is not None
    assert check(found.schedule) == []
    assert judge(found.loaded.program) == []
    assert beyond(found.loaded.program, runtime, 132) == []
    outcome = found.listed.outcome
    assert outcome is not None
    assert outcome.percent_of_optimal > 90


def test_a_long_program_is_timed_beside_shorter_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """On dgx-h100:4, a program of 15,872 sends lost to one of 3,968 sends that took twice as long."""
    monkeypatch.setattr(loadable, "_MOST_RUN_SENDS", 0)
    found = _found("rccl")
    assert found.loaded is not None
    assert found.loaded.instances == 1
    assert found.loaded.time_s > 0


def test_the_fastest_of_all_is_kept_if_it_loads() -> None:
    free, _ = _searched("dgx-a100:1", 64 << 20)
    found = _found("msccl", "dgx-a100:1", 64 << 20)
    assert found.loaded is not None
    assert found.loaded.limit == ""
    assert found.loaded.tried == 1
    assert found.listed.sends == free.listed.sends


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_nothing_that_was_near_runs_faster(runtime: str) -> None:
    """The kept program is as fast by the runtime's costs as the fastest over links in one instance."""
    request = _request(runtime, "dgx-h100:1", 64 << 20)
    found = _found(runtime, "dgx-h100:1", 64 << 20)
    plain = _searched("dgx-h100:1", 64 << 20)[0].listed
    assert found.loaded is not None
    (one,) = variants_of(plain, runtime, 64 << 20, (1,))
    times = one.times_s(request.network, 64 << 20)
    assert 0 < found.loaded.time_s <= min(times.values()) * (1 + 1e-9)
    assert found.loaded.instances > 1
    # MSCCL starts threadblocks in clusters of 4, of which an H200 holds 30.
    limit = {"msccl": 120}.get(runtime, request.network.multiprocessors)
    assert (found.loaded.plan or found.loaded.program).threadblocks_max <= limit <= 132


def test_a_network_that_does_not_name_its_gpus_may_have_the_smallest() -> None:
    ring = synthesize(SQUARE, "all_reduce", 1 << 20, method="all_pairs", jobs=0).listed
    for runtime in ("msccl", "mscclpp"):
        counts = (1, 8, 12)
        bare = [one.instances for one in variants_of(ring, runtime, 1 << 20, counts)]
        many = replace(ring, network=replace(SQUARE, multiprocessors=1000))
        free = [one.instances for one in variants_of(many, runtime, 1 << 20, counts)]
        few = replace(ring, network=replace(SQUARE, multiprocessors=2))
        assert free[: len(bare)] == bare
        assert len(free) > len(bare) > 0
        assert list(variants_of(few, runtime, 1 << 20, counts)) == []


@pytest.mark.parametrize(("hosts", "able"), [(1, True), (4, False)])
def test_a_broadcast_that_never_ends_between_hosts_has_no_protocol_simple(hosts: int, able: bool) -> None:
    tree = synthesize(SQUARE, "broadcast", chunk_bytes=1 << 18, chunks=4, method="tree", jobs=0).listed
    network = replace(SQUARE, hosts=tuple(f"host{rank % hosts}" for rank in range(SQUARE.ranks)))
    for runtime in ("msccl", "rccl"):
        (variant,) = variants_of(replace(tree, network=network), runtime, 1 << 20, (1,))
        assert ("Simple" in variant.times_s(network, 1 << 20)) == (able or runtime == "rccl")
        assert variant.program.protocol in variant.protocols


def test_a_gpu_with_too_few_multiprocessors_forbids_a_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    # Without the algorithms of libraries.
    monkeypatch.setattr(loadable, "_MOST_MERGED_SENDS", 1)
    few = replace(SQUARE, multiprocessors=2)
    request = Request(few, "all_gather", size_bytes=SIZE_BYTES, jobs=0, runtime="msccl", method="direct")
    with pytest.raises(UsageError, match="at most 2 threadblocks run at once on its GPU"):
        synthesize(request)


def test_a_limit_that_forbids_the_fastest_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loadable, "_MOST_SENDS", 100)
    found = _found("msccl")
    assert found.loaded is not None
    assert "and at most 100 are compiled" in found.loaded.limit
    assert found.listed.sends <= 100


@pytest.mark.parametrize("runtime", ["rccl", "mscclpp"])
def test_a_sweep_merges_messages_where_nothing_else_loads(
    monkeypatch: pytest.MonkeyPatch, runtime: str
) -> None:
    monkeypatch.setattr(loadable, "_MOST_SENDS", 1)
    network, sizes = replace(SQUARE, hosts=("a", "a", "b", "b")), (1 << 16, 1 << 18)
    found = synthesize(Request(network, "all_reduce", sizes=sizes, jobs=0, runtime=runtime, quick=True))
    (only,) = found.ranges
    assert (only.from_bytes, only.to_bytes, only.method) == (*sizes, "host_halving")
    assert only.program.count.max() > 1
    assert judge(only.program) == []
    assert runtime != "rccl" or beyond(only.program, "rccl") == []
    assert (only.plan is None) == (runtime == "rccl")
    assert only.plan is None or examine_plan(only.plan).findings == ()
    for point in only.points:
        assert 0 < point.percent_of_optimal < point.unrestricted_percent
        assert "at most 1 are compiled" in point.limit


# The fastest schedules cut the buffer in multiples of 3.
CUBE, TORUS = (family(spec, [1e-6], [200e9]) for spec in ("hypercube:8", "torus:2x3"))


@cache
def _free(network: Network, size_bytes: int) -> tuple[Synthesis, list[Schedule]]:
    kept: list[Schedule] = []
    request = Request(network, "all_reduce", size_bytes=size_bytes, jobs=0)
    return fastest_plain(request, keep=kept.append), kept


# RCCL loads the files of MSCCL.
@pytest.mark.parametrize(
    ("network", "size_bytes", "divides", "runtime"),
    [
        (TORUS, 64 << 10, False, "rccl"),
        (TORUS, 64 << 10, False, "mscclpp"),
        (CUBE, 48 << 10, True, "msccl"),
    ],
)
@pytest.mark.usefixtures("few_runs")
def test_a_file_has_chunks_that_divide_its_size(
    network: Network, size_bytes: int, divides: bool, runtime: str
) -> None:
    free = _free(network, size_bytes)
    assert free[0].listed.collective.chunks % 3 == 0
    request = Request(network, "all_reduce", size_bytes=size_bytes, jobs=0, runtime=runtime)
    found = loadable_among(request, *free)
    assert found.loaded is not None
    assert found.loaded.limit == ""
    plan, program = found.loaded.plan, found.loaded.program
    assert (program.collective.chunks % 3 == 0) == divides
    assert size_bytes % ((16 if plan is not None else 4) * program.collective.chunks) == 0
    assert judge(program) == []
    if plan is not None:
        assert size_bytes % plan.granule_bytes == 0
        assert plan.min_bytes <= size_bytes <= plan.max_bytes
        assert examine_plan(plan).findings == ()


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"])
@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.usefixtures("few_runs")
def test_six_ranks_load_at_a_power_of_two(kind: Kind, runtime: str) -> None:
    """They do not divide 1 MiB: an all_reduce takes another number of chunks, the others the next size."""
    network = family("fully_connected:6", [1e-6], [1e9])
    found = synthesize(Request(network, kind, size_bytes=1 << 20, jobs=0, runtime=runtime, quick=True))
    assert found.loaded is not None
    outcome = found.listed.outcome
    assert outcome is not None
    assert outcome.percent_of_optimal > 75
    assert judge(found.loaded.program) == []


def test_a_size_that_no_plan_can_have_is_refused_with_its_reason() -> None:
    with pytest.raises(UsageError, match="takes multiples of 16 bytes in these chunks, found 1000"):
        synthesize(Request(SQUARE, "all_reduce", size_bytes=1000, jobs=0, runtime="mscclpp"))


@pytest.mark.usefixtures("few_runs")
def test_a_sweep_takes_at_each_size_chunks_that_divide_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loadable, "_MOST_SWEPT_PLAN_SENDS", 200)
    sizes = (48 << 10, 64 << 10, (64 << 10) + 8)
    found = synthesize(Request(TORUS, "all_reduce", sizes=sizes, jobs=0, runtime="mscclpp", quick=True))
    for one in found.ranges:
        assert one.plan is not None
        divided = [point.size_bytes % one.plan.granule_bytes == 0 for point in one.points]
        assert divided == [point.size_bytes % 16 == 0 for point in one.points]
        assert one.plan.max_bytes <= one.plan.most_bytes
    # The last size has no whole units of 16 bytes, but its range has other sizes.
    assert "takes multiples of" in found.ranges[-1].points[-1].limit


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter", "all_reduce", "all_to_all"])
def test_a_plan_has_as_many_chunks_as_its_schedule_shows(kind: Kind) -> None:
    schedule = synthesize(SQUARE, kind, 1 << 16, jobs=0).listed
    (variant,) = variants_of(schedule, "mscclpp", 1 << 16, (1,))
    assert variant.plan is not None
    granule_bytes = variant.plan.granule_bytes
    assert chunk_limit(schedule.collective, "mscclpp", granule_bytes) == ""
    # Ranks cannot share out 8 bytes more, so the next larger size is meant.
    limit = chunk_limit(schedule.collective, "mscclpp", granule_bytes + 8)
    assert limit.startswith(f"it takes multiples of {granule_bytes} bytes") == (kind == "all_reduce")
    assert variant.limit_at(granule_bytes) == ""
    assert "offsets of 32 bits" in variant.limit_at(granule_bytes << 32)


def test_limits_that_forbid_everything_are_all_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loadable, "_MOST_SENDS", 1)
    monkeypatch.setattr(loadable, "_MOST_MERGED_SENDS", 1)
    monkeypatch.setattr(loadable, "_MOST_MESSAGES", 1)
    with pytest.raises(UsageError, match="msccl can load none of") as raised:
        synthesize(Request(SQUARE, "all_gather", size_bytes=SIZE_BYTES, jobs=0, runtime="msccl"))
    assert "and at most 1 are compiled" in raised.value.message


SIZES = (1 << 10, 1 << 16, 1 << 24)
SQUARE = family("fully_connected:4", [2e-6], [50e9])


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.usefixtures("few_runs")
def test_a_sweep_makes_a_proven_file_for_each_range_of_sizes(runtime: str) -> None:
    found = synthesize(Request(SQUARE, "all_reduce", sizes=SIZES, jobs=0, runtime=runtime))
    ranges = found.ranges
    assert (ranges[0].from_bytes, ranges[-1].to_bytes) == (SIZES[0], SIZES[-1])
    assert all(one.to_bytes + 1 == two.from_bytes for one, two in pairwise(ranges))
    assert [point.size_bytes for one in ranges for point in one.points] == list(SIZES)
    for one in ranges:
        assert judge(one.program) == []
        assert (one.program.min_bytes, one.program.max_bytes) == (one.from_bytes, one.to_bytes)
        assert all(point.percent_of_optimal <= point.unrestricted_percent + 1e-9 for point in one.points)
        if runtime != "mscclpp":
            assert beyond(one.program, runtime) == []
            continue
        assert one.plan is not None
        assert examine_plan(one.plan).findings == ()
        assert (one.plan.min_bytes, one.plan.max_bytes) == (one.from_bytes, one.to_bytes)


def test_a_run_takes_at_least_the_time_of_its_links() -> None:
    # The executor's costs of operations of switches count no turns at ports.
    request = Request(pod("dgx-h100+nvls"), "all_reduce", size_bytes=1 << 26, method="nvls", jobs=0)
    found = synthesize(replace(request, runtime="mscclpp"))
    assert found.loaded is not None and found.listed.outcome is not None
    assert found.loaded.time_s >= found.listed.outcome.time_s


def test_a_run_by_switches_is_compared_though_it_is_slower_over_links() -> None:
    network, size_bytes = pod("dgx-h100+nvls"), 1 << 14
    made = [
        method.synthesize(network, collective("all_reduce", 8, 8 * laps), size_bytes // (8 * laps))
        for method, laps in ((direct, 1), (nvls, 1), (nvls, 2))
    ]
    assert replay(made[1]).time_s > 1.25 * replay(made[0]).time_s
    compared = loadable._compared(made[0], made[1:])
    assert [(one.method, one.collective.chunks) for one in compared] == [("direct", 8), ("nvls", 8)]


@pytest.mark.parametrize("runtime", ["msccl", "mscclpp"])
def test_a_sweep_is_as_fast_at_each_size_as_the_size_alone(
    runtime: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # To make programs of all numbers of instances takes several times as long.
    monkeypatch.setattr(loadable, "INSTANCES", (1, 2))
    network = pod("l40s") if runtime == "msccl" else SQUARE
    request = Request(network, "all_reduce", jobs=0, runtime=runtime)
    sizes = (1 << 16, 1 << 24)
    found = synthesize(replace(request, sizes=sizes))
    times = {point.size_bytes: point.time_s for one in found.ranges for point in one.points}
    for size_bytes in sizes:
        # A sweep leaves out what serves one size only.
        alone = synthesize(replace(request, size_bytes=size_bytes, sweeping=True, solving=False)).loaded
        assert alone is not None
        assert times[size_bytes] <= alone.time_s * 1.006, size_bytes


def test_a_sweep_without_limits_is_as_good_as_the_best() -> None:
    found = synthesize(Request(SQUARE, "all_gather", sizes=SIZES, jobs=0, runtime="msccl"))
    assert all(point.limit == "" for one in found.ranges for point in one.points)
    free = synthesize(Request(SQUARE, "all_gather", sizes=SIZES, jobs=0)).schedule
    assert isinstance(free, Selection)
    told = [point.percent_of_optimal for one in found.ranges for point in one.points]
    assert told == pytest.approx([point.percent_of_optimal for point in free.points], abs=0.6)


def test_a_sweep_names_the_limit_of_the_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loadable, "_MOST_SENDS", 24)
    found = synthesize(Request(SQUARE, "all_reduce", sizes=SIZES, jobs=0, runtime="rccl"))
    assert any("at most 24 are compiled" in point.limit for one in found.ranges for point in one.points)
    monkeypatch.setattr(loadable, "_MOST_SENDS", 1)
    with pytest.raises(UsageError, match="rccl can load none of"):
        synthesize(Request(SQUARE, "all_reduce", sizes=SIZES, jobs=0, runtime="rccl"))


def test_the_table_of_sends_shows_limits_early() -> None:
    ring = synthesize(SQUARE, "all_reduce", 1 << 20, method="ring", jobs=0).listed
    assert [early_limit(ring, runtime) for runtime in RUNTIMES] == ["", "", ""]
    wide = synthesize(
        family("switch:70", [1e-6], [1e9]), "all_to_all", chunk_bytes=1, chunks=70, jobs=0
    ).listed
    assert early_limit(wide, "msccl") == ""
    assert "peers, at most 64 threadblocks are allowed" in early_limit(wide, "rccl")
    assert beyond(lower(wide), "rccl") != []
    spread = synthesize(SQUARE, "broadcast", 1 << 20, method="tree", jobs=0).listed
    assert early_limit(spread, "mscclpp") == "it has no collective broadcast"
    by_switches = nvls.synthesize(pod("dgx-h100+nvls:4"), collective("all_reduce", 32, 2048), 1)
    assert 3 * by_switches.sends > MOST_PLAN_OPERATIONS and early_limit(by_switches, "mscclpp") == ""


@pytest.mark.parametrize(
    "options",
    [
        {"runtime": "nccl"},
        {"runtime": "msccl", "method": "periodic"},
        {"runtime": "msccl", "method": "symmetric"},
    ],
)
def test_requests_that_no_runtime_serves_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        synthesize(pod("dgx-a100:1"), "all_gather", SIZE_BYTES, **options)
