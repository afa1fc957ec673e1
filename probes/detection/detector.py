"""Detection in one call: of this machine, or of machines that files describe."""

from __future__ import annotations

import os
from pathlib import Path

from probes.detection import merge
from probes.files import read_bytes
from probes.topology import Topology

__all__ = ["detect"]


def detect(*files: str | os.PathLike[str], active: bool = False, seed: int = 0) -> Topology:
    """Return the topology of this machine, or of the machines that ``files`` describe, if given.

    A file is NCCL's or hwloc's XML, what ``nvidia-smi topo -m`` or ``nvidia-smi -q -x`` printed, the tables
    of rocm-smi or amd-smi, or the folder of a recording (``ccctl detect --record``); its type is detected.
    Files of one machine are merged, other machines are added. ``active`` also probes this machine's NICs and
    GPU pairs by traffic (AdapCC, Sec. IV-A), in an order drawn from ``seed``. Bandwidths are in GB/s (10^9
    bytes), memory in bytes.

    Raises MissingInputError or DataError, naming the file. Takes a second or two on a live machine.

    >>> from probes import detect
    >>> topology = detect()
    >>> [host.name for host in topology.hosts] == [__import__("socket").gethostname()]
    True
    """
    if files:
        return merge.combined([_read(Path(file)) for file in files])
    found = merge.live()
    if active:
        from probes.detection.active import probed

        found = probed(found, seed)
    return found


def _read(path: Path) -> Topology:
    if path.is_dir():
        return merge.read_recording(path)
    return merge.read_file(read_bytes(str(path)), str(path))
