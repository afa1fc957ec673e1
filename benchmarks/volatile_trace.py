"""Rates of hosts over time, from AdapCC's trace of a public cloud, and the gain of planning for each moment.

    python -P benchmarks/volatile_trace.py

The clairvoyant planner knows each moment's rates as it begins, and has its schedule at once: by simulation no
adaptation can beat it with these methods. A planner that measures once a moment is a moment late.

The trace is bandwidth-hw of cloud/trace in github.com/JoeyYoung/adapcc, the repository of the paper's
authors; its figures are printed first. Then AdapCC's Fig. 18a is simulated: all_reduces of 8 MiB on four
hosts of 400 Mbit/s times the trace, its changes amplified by x, over 20 of its moments one after another. The
speed-up is over the schedule for equal hosts, which a library plans once and keeps.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean, median, quantiles

from exec.replan import SchedulePrediction, replanned
from synth import Request, synthesize
from synth.network import Link, Network, build
from synth.schedules import Schedule

__all__ = ["Moment", "forecasts", "makespan_s", "network_of", "rates"]

# Fig. 18a as the lab of adaptive_lab.py has it, which takes as many moments as fit into its iterations.
HOSTS, MBIT, SIZE_BYTES, AMPLIFY, MOMENTS = 4, 400.0, 8 << 20, (0.0, 0.3, 0.6), 20
TRACE = Path(__file__).parents[1] / "../shared/data/topologies/traces/adapcc-bandwidth-hw.txt"
BASE_GBIT = 14.7
# The trace has values in Gbit/s, and some, which are larger, in Mbit/s.
_LEAST_MBIT = 25
_BYTES_PER_MBIT = 125_000
_ALPHA_S = 1e-4


@dataclass(frozen=True)
class Moment:
    """The rates of one moment (Mbit/s), and predicted times of a collective.

    ``static_s`` is by the schedule for equal hosts, ``best_s`` by the best for this moment, ``late_s`` by the
    best for the moment before.
    """

    rates: tuple[float, ...]
    static_s: float
    best_s: float
    late_s: float


def trace_gbit() -> list[float]:
    """Return the rates of the trace in Gbit/s; end the benchmark without it."""
    if not TRACE.exists():
        sys.exit(f"volatile_trace.py: expected AdapCC's trace at {TRACE}, found nothing")
    return [value if value < _LEAST_MBIT else value / 1000 for value in ast.literal_eval(TRACE.read_text())]


def rates(amplify: float, hosts: int, mbit: float) -> Iterator[tuple[float, ...]]:
    """Yield for each moment the rate of each host: the trace from another place on, amplified (Sec. VI-D)."""
    values = trace_gbit()
    for at in range(len(values)):
        row = []
        for host in range(hosts):
            value = values[(at + host * len(values) // hosts + len(values) // 3) % len(values)] / BASE_GBIT
            share = (
                value * (1 - amplify) if value < 0.97 else value * (1 + amplify) if value > 1.03 else value
            )
            row.append(max(1.0, mbit * share))
        yield tuple(row)


def network_of(mbit: Sequence[float]) -> Network:
    """Return hosts of one rank behind a switch, each with its rate both ways."""
    links = [
        Link(a, b, _ALPHA_S, 1 / (min(one, other) * _BYTES_PER_MBIT), (f"host {a} out", f"host {b} in"))
        for a, one in enumerate(mbit)
        for b, other in enumerate(mbit)
        if a != b
    ]
    return build("hosts", [f"host {at}" for at in range(len(mbit))], links)


def forecasts(static: Schedule, moments: Sequence[tuple[float, ...]]) -> list[Moment]:
    """Return the predicted times of the static schedule by moment, and the best schedule of each moment."""
    found, known, before = [], [static], static
    for mbit in moments:
        network = network_of(mbit)
        plan = replanned(static, network, least_gain=1.0, others=known[1:], quick=True, jobs=0)
        if plan.schedule is not None and plan.schedule not in known:
            known.append(plan.schedule)
        static_s, late_s = (SchedulePrediction(one).time_s(network) for one in (static, before))
        found.append(Moment(mbit, static_s, plan.after_s, late_s))
        before = plan.schedule or static
    return found


def makespan_s(times_s: Sequence[float], iterations: int, hold_s: float) -> float:
    """Return the makespan of ``iterations`` of ``times_s[m]`` in moment m, which lasts ``hold_s``."""
    now_s = 0.0
    for _ in range(iterations):
        left = 1.0
        while left > 0:
            at = min(int(now_s / hold_s + 1e-9), len(times_s) - 1)
            until_s = (at + 1) * hold_s if at < len(times_s) - 1 else float("inf")
            step_s = min(left * times_s[at], until_s - now_s)
            now_s, left = now_s + step_s, left - step_s / times_s[at]
            if left < 1e-9:
                break
    return now_s


def main() -> None:
    """Print the speed-ups for each amplification."""
    least, *_, most = tenths = quantiles(trace_gbit(), n=10)
    print(f"trace: median {median(tenths):.1f} Gbit/s, a tenth below {least:.1f}, a tenth above {most:.1f}")
    even = Request(network_of([MBIT] * HOSTS), "all_reduce", size_bytes=SIZE_BYTES, quick=True, jobs=0)
    static = synthesize(even).listed
    for amplify in AMPLIFY:
        seen = forecasts(static, list(islice(rates(amplify, HOSTS, MBIT), MOMENTS)))
        # Moments last equally long, so speeds are added up, not times.
        static_hz, best_hz, late_hz = (
            fmean(1 / getattr(one, which) for one in seen) for which in ("static_s", "best_s", "late_s")
        )
        print(
            f"x={amplify:g}: clairvoyant {best_hz / static_hz:.2f} times as fast as planned once, "
            f"one moment late {late_hz / static_hz:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
