"""The least time of an all_reduce on networks of up to six ranks, by exhaustive search, beside the bound.

    pip install ortools
    python -P benchmarks/small_optima.py [--cases ring:4,mesh:2x3] [--chunks 1,2] [--latencies 1,2,4]

The optimum tells whether a gap between schedule and bound is the fault of the schedule or of the bound. Time
goes in rounds of one chunk on one link; a chunk arrives some rounds, the latency, after its start. A
constraint program asks whether a schedule with a given number of rounds exists, for any partial sums: a send
carries its source's own contribution or not, and any of the sums that had arrived there. CP-SAT answers. The
fewest rounds with the answer yes are the optimum for that number of chunks.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from synth import Request, synthesize
from synth.bounds.lower_bounds import bounds
from synth.collective import collective
from synth.network import Network
from synth.networks.families import family

CASES = "ring:4,ring:5,ring:6,mesh:2x3,hypercube:4,switch:4,switch:5,switch:6"
CHUNK_BYTES, BETA = 1000, 1e-9
ROUND_S = CHUNK_BYTES * BETA


@dataclass(frozen=True)
class Answer:
    """Whether there is a schedule with that number of rounds; None if the time was too short to tell."""

    rounds: int
    exists: bool | None
    seconds: float


def exists(network: Network, chunks: int, latency: int, rounds: int, seconds: float) -> Answer:
    """Return whether an all_reduce ends after ``rounds`` rounds; a send keeps its link and ports for one."""
    from ortools.sat.python import cp_model

    begun_s = time.perf_counter()
    model = cp_model.CpModel()
    ranks, links = network.ranks, network.links
    src = network.src.tolist()
    starts = range(rounds - latency + 1)
    used: dict[tuple[int, int], list[Any]] = {}
    for _ in range(chunks):
        goes: dict[tuple[int, int], Any] = {}
        carries: dict[tuple[int, int, int], Any] = {}
        for link in range(links):
            for at in starts:
                goes[link, at] = model.new_bool_var("")
                for held in (
                    link,
                    *(
                        links + port
                        for port in network.link_port[
                            network.link_port_start[link] : network.link_port_start[link + 1]
                        ].tolist()
                    ),
                ):
                    used.setdefault((held, at), []).append(goes[link, at])
                for rank in range(ranks):
                    carries[link, at, rank] = model.new_bool_var("")
                    model.add_implication(carries[link, at, rank], goes[link, at])

        for link in range(links):
            for at in starts:
                total = {rank: carries[link, at, rank] for rank in range(ranks)}
                _sum(model, network, carries, src[link], at - latency, total, model.new_bool_var(""))
        for node in range(ranks):
            _sum(model, network, carries, node, rounds - latency, dict.fromkeys(range(ranks), 1), 1)
    for sends in used.values():
        model.add_at_most_one(sends)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = 2
    status = solver.solve(model)
    found = {cp_model.OPTIMAL: True, cp_model.FEASIBLE: True, cp_model.INFEASIBLE: False}.get(status)
    return Answer(rounds, found, time.perf_counter() - begun_s)


def _sum(
    model: Any,
    network: Network,
    carries: dict[tuple[int, int, int], Any],
    node: int,
    last: int,
    total: Mapping[int, Any],
    own: Any,
) -> None:
    """Constrain ``total`` of each rank: its own part plus some sends to ``node`` started by ``last``."""
    parts: dict[int, list[Any]] = {rank: [] for rank in range(network.ranks)}
    for link, at in dict.fromkeys((link, at) for link, at, _ in carries):
        if network.dst[link] != node or at > last:
            continue
        adds = model.new_bool_var("")
        for rank, added in parts.items():
            part, carried = model.new_bool_var(""), carries[link, at, rank]
            model.add_implication(part, adds)
            model.add_implication(part, carried)
            model.add_bool_or(part, adds.negated(), carried.negated())
            added.append(part)
    for rank, added in parts.items():
        model.add(sum([*added, *([own] if rank == node else [])]) == total[rank])


def optimum(network: Network, chunks: int, latency: int, least: int, seconds: float) -> list[Answer]:
    """Return the answers from ``least`` rounds on, to the first that is not no."""
    answers = [exists(network, chunks, latency, least, seconds)]
    while answers[-1].exists is False:
        answers.append(exists(network, chunks, latency, answers[-1].rounds + 1, seconds))
    return answers


def main() -> None:
    """Print a row for each network, latency and number of chunks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", default=CASES)
    parser.add_argument("--chunks", default="1,2")
    parser.add_argument("--latencies", default="1,2,4", help="rounds from the start of a send to its arrival")
    parser.add_argument("--seconds", type=float, default=120.0, help="for each question")
    asked = parser.parse_args()
    print("| network | chunks | latency | bound | optimum | auto | bound / optimum | optimum / auto | s |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for spec in asked.cases.split(","):
        for latency in map(int, asked.latencies.split(",")):
            for chunks in map(int, asked.chunks.split(",")):
                # A send keeps its link for a round, and arrives after ``latency`` of them.
                network = family(spec, [(latency - 1) * ROUND_S], [1 / BETA])
                shape = collective("all_reduce", network.ranks, chunks)
                least = max(bound.time_s for bound in bounds(network, shape, CHUNK_BYTES)) / ROUND_S
                request = Request(network, "all_reduce", chunk_bytes=CHUNK_BYTES, chunks=chunks)
                made = synthesize(request).schedule
                assert made.outcome is not None
                auto = made.outcome.time_s / ROUND_S
                answers = optimum(network, chunks, latency, max(latency, -int(-least // 1)), asked.seconds)
                best = answers[-1]
                known = best.exists is True
                optimal = f"{best.rounds}" if known else f"≥ {best.rounds}"
                spent_s = sum(answer.seconds for answer in answers)
                shares = [least / best.rounds, best.rounds / auto]
                ratios = " | ".join(f"{100 * share:.0f} %" if known else "–" for share in shares)
                print(
                    f"| {spec} | {chunks} | {latency} | {least:.2f} | {optimal} | {auto:.2f} | {ratios} | "
                    f"{spent_s:.1f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
