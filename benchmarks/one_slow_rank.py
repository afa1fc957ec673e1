"""All_reduce with one slow rank: its time beyond the even network and beyond the bound, simulated.

    python benchmarks/one_slow_rank.py [--ranks 8,16] [--percent 50,90] [--bytes 67108864] [--chunks 4096]

The network is a switch with one port out and one in for each rank; rank 0 has 50 to 100 % of the others'
bandwidth. OptCC (arXiv 2606.01680) reports 2 to 6 % beyond the even ring for its pipeline, and up to 57 % for
earlier methods. A link has one rate, so a sender to the slow rank is busy for as long as that takes. A ring
pays the slow rank in full: 1 / share of the even time. Up to 64 ranks trees (forest) win mostly, from 128 on
circulant: 512 ranks with one at 50, 75 and 90 % are 1.8, 2.4 and 2.4 % beyond the bound, found in 4 to 5 CPU
seconds.

--chunks: only trees (forest) with this number of chunks, instead of the search of auto over methods and
chunks.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np

from probes.base.columns import floats
from synth import Request, synthesize
from synth.network import Network
from synth.networks.families import family
from synth.portfolio.plain import warm

ALPHA_S, BYTES_PER_S = 5e-6, 12.5e9
RANKS = (8, 16, 32, 64, 128, 256, 512)
PERCENT = (100, 90, 80, 70, 60, 50)


def network_of(ranks: int, share: float) -> Network:
    """Return ranks on one switch; rank 0 has ``share`` of the others' bandwidth, both ways."""
    return slowed(family(f"switch:{ranks}", [ALPHA_S], [BYTES_PER_S]), share)


def slowed(even: Network, share: float) -> Network:
    """Return the network with ``share`` of the bandwidth of all links of rank 0."""
    slow = (even.src == 0) | (even.dst == 0)
    beta = np.where(slow, even.beta_s_per_byte / share, even.beta_s_per_byte)
    return replace(even, name=f"{even.name}, rank 0 at {share:.0%}", beta_s_per_byte=floats(beta))


def slow_rank(all_ranks: list[int], percents: list[int], size_bytes: int, chunks: int | None) -> None:
    """Print a row for each number of ranks and each share; the planner checks each schedule."""
    warm()
    print("ranks  slow at  method      chunks   time ms  over even  at least  over bound  CPU s  bound")
    for ranks in all_ranks:
        even_s = 2 * (ranks - 1) / ranks * size_bytes / BYTES_PER_S
        for percent in percents:
            begun_s = time.process_time()
            request = Request(network_of(ranks, percent / 100), "all_reduce", size_bytes=size_bytes)
            if chunks is not None:
                size = -(-size_bytes // chunks)
                request = replace(request, size_bytes=None, chunk_bytes=size, chunks=chunks, method="forest")
            schedule = synthesize(request).schedule
            took_s = time.process_time() - begun_s
            outcome = schedule.outcome
            assert outcome is not None
            time_s, bound_s = outcome.time_s, outcome.binding.time_s
            print(
                f"{ranks:5}  {percent:5} %  {schedule.method:10}{schedule.collective.chunks:8}"
                f"{time_s * 1e3:10.3f}{time_s / even_s - 1:11.1%}{max(0.0, bound_s / even_s - 1):10.1%}"
                f"{time_s / bound_s - 1:12.1%}{took_s:7.1f}  {outcome.binding.name}",
                flush=True,
            )


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main() -> None:
    """Run what is asked for."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    options.add_argument("--ranks", type=_numbers, default=list(RANKS))
    options.add_argument("--percent", type=_numbers, default=list(PERCENT))
    options.add_argument("--bytes", type=int, default=64 << 20)
    options.add_argument("--chunks", type=int)
    asked = options.parse_args()
    slow_rank(asked.ranks, asked.percent, asked.bytes, asked.chunks)


if __name__ == "__main__":
    main()
