"""The environment of a report: an allow-list of facts about where it was measured."""

from __future__ import annotations

import importlib.metadata
import platform
from pathlib import Path
from typing import Any

__all__ = ["machine"]

_PACKAGES = ("ccctl", "numpy", "mpi4py", "torch", "cupy-cuda12x", "cupy-cuda13x")


def machine(comm: Any) -> dict[str, str]:
    """Versions, kernel and processor of all ranks; where hosts differ, each value once. Collective."""
    every = comm.allgather(_own())
    names = dict.fromkeys(name for own in every for name in own)
    return {name: " | ".join(dict.fromkeys(own[name] for own in every if name in own)) for name in names}


def _own() -> dict[str, str]:
    found = {"python": platform.python_version(), "kernel": platform.release(), "cpu": _processor()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    """The model as the kernel names it; the architecture where it names none."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return platform.machine()
    models = [line.partition(":")[2].strip() for line in lines if line.lower().startswith("model name")]
    return models[0] if models else platform.machine()
