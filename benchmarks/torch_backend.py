"""The backend ccctl of torch.distributed against gloo: all_reduce of DDP's buckets, and steps of DDP.

    python benchmarks/torch_backend.py [--ranks 4] [--size 25M] [--rounds 8] [--labs slow_host,even_4]
        [--lab-size 8M] [--lab-rounds 2]
    python benchmarks/torch_backend.py --halves 128K,512K,1M [--labs even_4] [--rounds 8]

Ranks are started as torchrun starts them: first on this host, then, for each named case of ``lab_cases.py``,
one on each host of a lab, which needs root. Both backends work in the same processes, in turn, after the
calls in which ccctl tries both ways. A ratio is gloo's median time over ccctl's: above 1 ccctl is faster.
``--halves`` instead times DeAR's reduce_scatter and all_gather (`exec.training.dear`) beside an all_reduce of
the same bytes, as in the paper's Fig. 5. Needs an environment with torch.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from statistics import geometric_mean, median
from time import perf_counter

from lab_cases import CCCTL, HETEROGENEOUS, HOMOGENEOUS, lab

from exec.lab.model import DEVICE
from probes.base import format_size, parse_size

# Trials of each way during the first calls (exec.training.backend.autotune), for both ways.
TRIED = 6
LAYERS = 16
# Width of a square layer: gradients of 64 MiB on this host, 16 MiB in a lab.
WIDTH, LAB_WIDTH = 1024, 512


def times_s(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each call in each round, as the maximum over ranks."""
    import torch
    import torch.distributed as dist

    for name, call in calls.items():
        for _ in range(1 if name == "gloo" else TRIED + 1):
            call()
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            dist.barrier()
            begin = perf_counter()
            call()
            spent = torch.tensor(perf_counter() - begin)
            dist.all_reduce(spent, dist.ReduceOp.MAX)
            found[name].append(float(spent))
    return found


def rank_main(size_bytes: int, rounds: int, width: int) -> None:
    """Run one rank; rank 0 prints a JSON object of times by operation and backend."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    groups = {name: dist.new_group(backend=name) for name in ("gloo", "ccctl")}
    data = torch.zeros(size_bytes // 4)
    reduces = {name: partial(dist.all_reduce, data, group=group) for name, group in groups.items()}
    found = {"all_reduce": times_s(reduces, rounds)}
    calls = {}
    for name, group in groups.items():
        layers = [nn.Linear(width, width) for _ in range(LAYERS)]
        model = DistributedDataParallel(nn.Sequential(*layers), process_group=group)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

        def step(model: nn.Module = model, optimizer: torch.optim.Optimizer = optimizer) -> None:
            optimizer.zero_grad()
            model(torch.ones(1, width)).sum().backward()
            optimizer.step()

        calls[name] = step
    found["step of DDP"] = times_s(calls, rounds)
    if dist.get_rank() == 0:
        decided = {" ".join(map(str, key)): way for key, way in groups["ccctl"].decided.items()}
        print("found " + json.dumps({"times_s": found, "decided": decided}), flush=True)
    dist.destroy_process_group()


def halves_main(rounds: int, *sizes_bytes: int) -> None:
    """Time an all_reduce and its halves over both backends on one rank; rank 0 prints the times."""
    import torch
    import torch.distributed as dist

    from exec.training.dear.decoupled_all_reduce import Halves

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    groups = {name: dist.new_group(backend=name) for name in ("gloo", "ccctl")}
    found: dict[str, dict[str, list[float]]] = {}
    for size_bytes in sizes_bytes:
        calls: dict[str, Callable[[], object]] = {}
        for name, group in groups.items():
            halves = Halves(group, torch.device("cpu"))
            row = torch.zeros(sum(halves.lengths(size_bytes // 4, 4)))
            exchange = halves.exchange(row)
            calls[f"{name} all_reduce"] = partial(dist.all_reduce, row, group=group)
            calls[f"{name} reduce_scatter"] = lambda one=exchange: (one.reduce_scatter(), one.reduced())
            calls[f"{name} all_gather"] = lambda one=exchange: (one.all_gather(), one.gathered())
        found[format_size(size_bytes)] = times_s(calls, rounds)
    if dist.get_rank() == 0:
        print("found " + json.dumps({"times_s": found, "decided": {}}), flush=True)
    dist.destroy_process_group()


def told_halves(times: dict[str, dict[str, list[float]]]) -> None:
    """Print the median times of each size and backend, and the halves' sum over the all_reduce."""
    print(f"{'ms':20}{'all_reduce':>12}{'reduce_scatter':>16}{'all_gather':>12}{'both / all_reduce':>20}")
    for size, found in times.items():
        for name in ("gloo", "ccctl"):
            whole, *halves = (
                1e3 * median(found[f"{name} {kind}"])
                for kind in ("all_reduce", "reduce_scatter", "all_gather")
            )
            cells = f"{whole:12.1f}{halves[0]:16.1f}{halves[1]:12.1f}{sum(halves) / whole:20.2f}"
            print(f"{size:>6} {name:13}{cells}", flush=True)


def result_of(ranks: list[subprocess.Popen[str]]) -> dict[str, dict[str, list[float]]]:
    """Return the times that rank 0 printed; end the program if a rank fails."""
    said = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        sys.exit("\n".join(said))
    line = next(line for line in said[0].splitlines() if line.startswith("found "))
    found = json.loads(line.removeprefix("found "))
    for key, way in found["decided"].items():
        print(f"    {key}: {way}")
    times: dict[str, dict[str, list[float]]] = found["times_s"]
    return times


def started(
    command: list[str], rank: int, ranks: int, address: str, port: int, **more: str
) -> subprocess.Popen[str]:
    """Return one rank with the variables that torchrun sets."""
    told = {"RANK": rank, "WORLD_SIZE": ranks, "MASTER_ADDR": address, "MASTER_PORT": port}
    told |= {"OMP_NUM_THREADS": 1} | more
    return subprocess.Popen(
        command,
        env=os.environ | {name: str(value) for name, value in told.items()},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def on_this_host(ranks: int, size_bytes: int, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Print the times of ``ranks`` ranks on this host."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, __file__, "--of-rank", str(size_bytes), str(rounds), str(WIDTH)]
    return result_of([started(command, rank, ranks, "127.0.0.1", port) for rank in range(ranks)])


def in_lab(case: str, *words: str) -> dict[str, dict[str, list[float]]]:
    """Print the times of a rank on each host of a lab."""
    description = (HETEROGENEOUS | HOMOGENEOUS)[case]
    hosts = 8 if "8]" in description else 6 if "6]" in description else 4
    with tempfile.TemporaryDirectory() as folder, lab(case, description, folder) as name:
        own = [sys.executable, __file__, *words]
        ranks = []
        for rank in range(hosts):
            on = [*CCCTL, "lab", "run", "--lab", name, "--on", f"h{rank + 1}", "--", *own]
            ranks.append(started(on, rank, hosts, "h1", 29517, GLOO_SOCKET_IFNAME=DEVICE))
        return result_of(ranks)


def told(where: str, times: dict[str, dict[str, list[float]]]) -> dict[str, float]:
    """Print the ratios of one place."""
    ratios = {}
    for what, by_name in times.items():
        gloo_s, ours_s = (median(by_name[name]) for name in ("gloo", "ccctl"))
        ratios[what] = gloo_s / ours_s
        seconds = f"gloo {gloo_s:.4f} s, ccctl {ours_s:.4f} s"
        print(f"{where}: {what}: {seconds}, ratio {ratios[what]:.2f}", flush=True)
    return ratios


def main() -> None:
    """Print all ratios, and the geometric means of the labs."""
    if sys.argv[1:2] in (["--of-rank"], ["--of-halves"]):
        (rank_main if sys.argv[1] == "--of-rank" else halves_main)(*map(int, sys.argv[2:]))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--size", default="25M")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--labs", default="")
    parser.add_argument("--lab-size", default="8M")
    parser.add_argument("--lab-rounds", type=int, default=2)
    parser.add_argument("--halves", default="")
    options = parser.parse_args()
    if options.halves:
        sizes = [str(parse_size(size, "--halves")) for size in options.halves.split(",")]
        told_halves(in_lab(options.labs or "even_4", "--of-halves", str(options.rounds), *sizes))
        return
    size_bytes = parse_size(options.size, "--size")
    if options.ranks:
        told(
            f"{options.ranks} ranks on this host, {format_size(size_bytes)}",
            on_this_host(options.ranks, size_bytes, options.rounds),
        )
    lab_bytes = parse_size(options.lab_size, "--lab-size")
    ratios = {}
    for case in filter(None, options.labs.split(",")):
        words = ("--of-rank", str(lab_bytes), str(options.lab_rounds), str(LAB_WIDTH))
        ratios[case] = told(f"{case}, {format_size(lab_bytes)}", in_lab(case, *words))
    for label, cases in (("uneven", HETEROGENEOUS), ("even", HOMOGENEOUS)):
        for what in ("all_reduce", "step of DDP"):
            if some := [found[what] for case, found in ratios.items() if case in cases]:
                print(f"{label} labs: {what}: geometric mean {geometric_mean(some):.2f}")


if __name__ == "__main__":
    main()
