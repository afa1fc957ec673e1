"""One prediction: ``synth``, ``simulate``, ``bench`` and ``watch`` give the same seconds for one schedule."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from drawn_examples import chessboard

from ccctl.arguments.bench_requests import Contestant
from ccctl.arguments.proven import proven_schedule
from exec.program.layout import count_of
from exec.replan import SchedulePrediction
from probes.link_costs import HostMemory
from synth import Request, synthesize
from synth.network import Link, build
from synth.prediction.run_time import schedule_run_s
from synth.simulation.relocate import moved_to


def random_network(seed):
    """Ranks that were measured, on one host whose memory was timed or on several hosts."""
    draw = np.random.default_rng(seed)
    ranks = int(draw.integers(2, 5))
    hosts = ["h"] * ranks if seed % 2 else [f"h{rank}" for rank in range(ranks)]
    links = [
        Link(*ends, *draw.uniform([1e-6, 1e-10], [5e-5, 1e-9])) for ends in permutations(range(ranks), 2)
    ]
    costs = [tuple(sorted(draw.uniform(1e-10, 1e-9, 2))) for _ in range(4)]
    memory = HostMemory("h", (1 << 12, 1 << 26), *costs, int(draw.integers(1, 5)))
    return replace(build("measured", hosts, links), memory=(memory,), queues=True, measured=True)


@pytest.mark.parametrize(("seed", "method"), chessboard(range(6), ["ring", "direct", "greedy"]))
def test_bench_and_watch_predict_what_synth_and_simulate_print(seed, method):
    network, size_bytes = random_network(seed), 3 << 18
    schedule = synthesize(Request(network, "all_reduce", size_bytes=size_bytes, method=method)).schedule
    run_s = schedule_run_s(schedule)
    assert schedule_run_s(moved_to(schedule, network, schedule.chunk_bytes)) == run_s
    assert SchedulePrediction(schedule).time_s(network) == run_s
    contestant = Contestant("ours", proven_schedule(schedule, "ours", {}), None)
    count = count_of(schedule.collective, size_bytes, 4)
    for explain in (False, True):
        contender = contestant.contender(size_bytes, count, 4, explain=explain)
        assert contender.predicted_s == (pytest.approx(run_s, rel=1e-12),)
