"""Opens peers by name: ``mpi``, ``mpi:ring``, ``mpi:all``, ``gloo``, ``nccl``."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from exec.peers.base import Peer
from probes.base import UnavailableError, UsageError, install, meant
from synth.collective import Collective

__all__ = ["LIBRARIES", "libraries_here", "library_of", "open_peers", "parse_peers"]

LIBRARIES = {
    "mpi": "exec.peers.mpi:MpiPeer",
    "gloo": "exec.peers.gloo:GlooPeer",
    "nccl": "exec.peers.nccl:NcclPeer",
}
_EVERY = "all"
# Packages that are not installed with ccctl, and how to install them.
_NEEDED = {
    "gloo": ("torch", "pip install torch (a CPU build is enough)"),
    "nccl": ("cupy", install("cuda12", beside=("nvidia-nccl-cu12",))),
}
# Other libraries that ranks on a device can use.
_BESIDE = {"cpu": ("gloo",)}


def library_of(device: str, *, sockets: bool) -> str:
    """Return the ranks' own library on ``device``; "" if ``sockets`` join the ranks."""
    if sockets:
        return ""
    return "nccl" if device == "cuda" else "mpi"


def libraries_here(device: str) -> tuple[str, ...]:
    """Return this host's libraries whose collectives run on ``device``; the ranks' own library is first."""
    return (library_of(device, sockets=False), *(name for name in _BESIDE.get(device, ()) if _is_here(name)))


def _is_here(name: str) -> bool:
    return find_spec(_NEEDED[name][0]) is not None


def parse_peers(text: str | None) -> tuple[str, ...]:
    """Return the peers of ``mpi:ring,gloo``, each once; raise UsageError for an unknown one."""
    names = tuple(dict.fromkeys(name.strip().lower() for name in text.split(","))) if text else ()
    for name in names:
        library, _, algorithm = name.partition(":")
        if library not in LIBRARIES or name.endswith(":"):
            raise UsageError(
                f": expected {', '.join(LIBRARIES)}, found {name!r}",
                hint=meant("mpi" if "mpi" in library else library, LIBRARIES)
                or "mpi:ring names an algorithm of the MPI library, mpi:all each of them.",
                argument="peers",
            )
        if algorithm and library != "mpi":
            raise UsageError(
                f" {name}: {library} has no algorithms to select in a run",
                hint=f"Set NCCL_ALGO={algorithm}, and name nccl alone." if library == "nccl" else "",
                argument="peers",
            )
    return names


def require_here(names: Sequence[str]) -> None:
    """Raise UnavailableError if this host lacks a package that a peer needs."""
    for name in names:
        library = name.partition(":")[0]
        package, installed = _NEEDED.get(library, ("", ""))
        if package and find_spec(package) is None:
            raise UnavailableError(
                f" {library} needs {package}, which is not installed",
                hint=f"{installed}, or leave {library} out.",
                argument="peers",
            )


def open_peers(comm: Any, names: Sequence[str], collective: Collective) -> list[Peer]:
    """Open and return every peer of ``names``, as `parse_peers` returns them; collective over ``comm``."""
    peers: list[Peer] = []
    for name in names:
        library, _, algorithm = name.partition(":")
        if library == "mpi":
            from exec.peers.mpi import MpiPeer, algorithm_names

            every = algorithm == _EVERY
            chosen = algorithm_names(collective) if every else [algorithm]
            peers += [MpiPeer(comm, variant, optional=every) for variant in chosen]
        else:
            module, _, cls = LIBRARIES[library].partition(":")
            peers.append(getattr(importlib.import_module(module), cls)(comm))
    return peers
