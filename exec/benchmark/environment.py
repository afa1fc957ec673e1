"""The environment of a report: an allow-list of facts about where it was measured."""

from __future__ import annotations

import importlib.metadata
import platform
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from probes.base import plural

__all__ = ["crowded", "machine", "waiting"]

# If ranks wait for a core for more than this share of the time, the second digit of a speed-up means nothing.
_WAITED = 0.1
_PACKAGES = ("ccctl", "numpy", "mpi4py", "torch", "cupy-cuda12x", "cupy-cuda13x")


def machine(comm: Any) -> dict[str, str]:
    """Return versions, kernel and CPU of all ranks, each distinct value once; collective."""
    every = comm.allgather(_own())
    names = dict.fromkeys(name for own in every for name in own)
    return {name: " | ".join(dict.fromkeys(own[name] for own in every if name in own)) for name in names}


def crowded(places: Sequence[tuple[str, Collection[int]]]) -> str:
    """Return how many ranks share how many cores on the fullest host; "" if each rank can have a core.

    ``places`` has the host of each rank, and the cores that the rank may run on.
    """
    ranks = Counter(host for host, _ in places)
    cores = {host: set[int]().union(*(own for where, own in places if where == host)) for host in ranks}
    busiest = max(ranks, key=lambda host: ranks[host] / len(cores[host]))
    if ranks[busiest] <= len(cores[busiest]):
        return ""
    where = f" of {busiest}" if len(ranks) > 1 else ""
    return f"{ranks[busiest]} ranks share {plural(len(cores[busiest]), 'core')}{where}"


def waiting(share: float) -> str:
    """Return why ranks waited for cores; "" if the ``share`` of time that they waited is small."""
    return "other programs take the cores of ranks" if share > _WAITED else ""


def _own() -> dict[str, str]:
    found = {"python": platform.python_version(), "kernel": platform.release(), "cpu": _processor()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    """Return the model as the kernel names it; the architecture where it names none."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return platform.machine()
    models = [line.partition(":")[2].strip() for line in lines if line.lower().startswith("model name")]
    return models[0] if models else platform.machine()
