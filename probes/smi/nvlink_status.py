"""The NVLink speed and model of each GPU, from text that ``nvidia-smi nvlink -s`` prints.

``nvidia-smi -L`` prints the same lines without links. ``nvidia-smi`` alone prints a table of GPUs. Reports of
PyTorch and others print one line for all equal GPUs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from probes.base import decimal

__all__ = ["LinkStatus", "link_statuses"]

_GPU = re.compile(r"GPU ([0-9]{1,6}): ([^()\n]{1,100}?) \(UUID: ([\w-]{1,64})\)")
_NAME = r"((?:NVIDIA|Tesla|GeForce|Quadro|TITAN) [\w. -]{1,100}?)"
_ALIKE = re.compile(rf"\s*GPU ([0-9]{{1,6}}(?:,[0-9]{{1,6}}){{0,255}}): {_NAME}\s*")
_IN_TABLE = re.compile(rf"\s+([0-9]{{1,6}})\s+{_NAME}\s+(?:On|Off|N/A)\s+[0-9A-F]{{8}}:[0-9A-F]{{2}}:")
_LINK = re.compile(r"Link [0-9]{1,3}: ([0-9.]{1,12}) GB/s")
# No link reaches 10 TB/s, so a larger number is misread text.
_MOST_GBS = 1e4


@dataclass(frozen=True)
class LinkStatus:
    """The model and UUID of a GPU, and the GB/s of its slowest link; None if no link is up."""

    name: str
    uuid: str
    gbs: float | None


_NOTHING = LinkStatus("", "", None)


def link_statuses(text: str) -> dict[int, LinkStatus]:
    """Return the status of each GPU by its number; if a GPU is listed twice, all its links count."""
    found: dict[int, LinkStatus] = {}
    number: int | None = None
    for line in text.split("\n"):
        gpu, link = _GPU.search(line), _LINK.search(line)
        named = _ALIKE.fullmatch(line) or _IN_TABLE.match(line)
        if gpu:
            number = int(gpu[1])
            known = found.get(number, _NOTHING)
            found[number] = replace(known, name=gpu[2], uuid=gpu[3])
        elif named:
            for alike in map(int, named[1].split(",")):
                found.setdefault(alike, replace(_NOTHING, name=named[2]))
        gbs = decimal(link[1], 0.0, _MOST_GBS) if link else None
        if gbs and number is not None:
            before = found[number].gbs
            found[number] = replace(found[number], gbs=gbs if before is None else min(before, gbs))
    return found
