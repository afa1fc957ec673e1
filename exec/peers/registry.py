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

# Libraries that ranks on a device can use instead of their own.
_BESIDE = {"cpu": ("gloo",)}


def library_of(device: str, *, sockets: bool) -> str:
    """Return the library that ranks on ``device`` have.

    It is "" if ``sockets`` join the ranks, which then need no library.
    """
    if sockets:
        return ""
    return "nccl" if device == "cuda" else "mpi"


def libraries_here(device: str) -> tuple[str, ...]:
    """Return the libraries of this host whose collectives run on ``device``, that of the ranks first."""
    return (library_of(device, sockets=False), *(name for name in _BESIDE.get(device, ()) if _is_here(name)))


def _is_here(name: str) -> bool:
    return find_spec(_NEEDED[name][0]) is not None


def parse_peers(text: str | None) -> tuple[str, ...]:
    """Return the peers of ``mpi:ring,gloo``, each once; raise UsageError for an unknown one."""
    names = tuple(dict.fromkeys(name.strip().lower() for name in text.split(","))) if text else ()
    for name in names:
        library, _, algorithm = name.partition(":")
        if library not in LIBRARIES or (name.endswith(":")):
            raise UsageError(
                f": expected {', '.join(LIBRARIES)}, found {name!r}",
                hint=meant("mpi" if "mpi" in library else library, LIBRARIES)
                or "An algorithm of the MPI library follows it: mpi:ring, or mpi:all for each of them.",
                argument="peers",
            )
        if algorithm and library == "gloo":
            raise UsageError(f" {name}: gloo has no algorithms to select", argument="peers")
    return names


def require_here(names: Sequence[str]) -> None:
    """Raise UnavailableError where a package that a peer needs is not installed on this host."""
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
    """Return every peer of ``names``, ready to be asked for calls; collective over ``comm``."""
    peers: list[Peer] = []
    for name in names:
        library, _, algorithm = name.partition(":")
        if library == "mpi" and algorithm == _EVERY:
            from exec.peers.mpi import MpiPeer, algorithm_names

            peers += [MpiPeer(comm, known, optional=True) for known in algorithm_names(collective)]
        else:
            module, _, cls = LIBRARIES[library].partition(":")
            peers.append(getattr(importlib.import_module(module), cls)(comm, algorithm))
    return peers
