"""The speed of each GPU's NVLinks, as ``nvidia-smi nvlink -s`` prints it beside a matrix.

``nvidia-smi -L`` prints the same lines about GPUs, without links.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from probes.numbers import decimal

__all__ = ["LinkStatus", "link_statuses"]

_GPU = re.compile(r"GPU ([0-9]{1,6}): ([^()\n]{1,100}?) \(UUID: ([\w-]{1,64})\)")
_LINK = re.compile(r"Link [0-9]{1,3}: ([0-9.]{1,12}) GB/s")
_MOST_GBS = 1e4


@dataclass(frozen=True)
class LinkStatus:
    """The model and UUID of a GPU, and GB/s of one of its links: the slowest; None where none is up."""

    name: str
    uuid: str
    gbs: float | None


def link_statuses(text: str) -> dict[int, LinkStatus]:
    """What is said of each GPU, by its number; of a GPU that is listed twice, all its links count."""
    found: dict[int, LinkStatus] = {}
    number: int | None = None
    for line in text.split("\n"):
        gpu, link = _GPU.search(line), _LINK.search(line)
        if gpu:
            number = int(gpu[1])
            found.setdefault(number, LinkStatus(gpu[2], gpu[3], None))
        gbs = decimal(link[1], 0.0, _MOST_GBS) if link else None
        if gbs and number is not None:
            before = found[number].gbs
            found[number] = replace(found[number], gbs=gbs if before is None else min(before, gbs))
    return found
