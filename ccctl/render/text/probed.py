"""What the active probes found on a host, one line an answer, refusals that are alike in one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from probes.topology import label

if TYPE_CHECKING:
    from probes.topology import Host, Probed

__all__ = ["lines"]

_WHAT = {
    "nic_numa": "NUMA node of NICs",
    "gpu_switch": "GPUs on one PCIe switch",
    "nic_switch": "GPUs on the switch of NICs",
}


def lines(host: Host) -> Iterator[str]:
    """The answers with how sure they are, then why others could not be had."""
    labels = {gpu.bus_id: label(gpu) for gpu in host.gpus} | {nic.name: label(nic) for nic in host.nics}
    apart: list[str] = []
    refused: dict[tuple[str, str], None] = {}
    for one in host.probed:
        if one.reason:
            refused[_WHAT[one.what], one.reason] = None
        elif one.answer == "no":
            apart.append(" and ".join(labels[name] for name in one.devices))
        else:
            yield f"probed: {_said(one, labels)}, {_sure(one)}"
    if apart:
        yield f"probed: no PCIe switch is shared by {'; '.join(apart)}"
    for what, reason in refused:
        yield f"not probed: {what}: {reason}"


def _said(one: Probed, labels: dict[str, str]) -> str:
    first = labels[one.devices[0]]
    if one.what == "nic_numa":
        return f"{first} is nearest to NUMA node {one.answer}"
    if one.what == "gpu_switch":
        return f"{first} and {labels[one.devices[1]]} share a PCIe switch"
    return f"on the switch of {first}: {', '.join(labels[name] for name in one.answer.split(','))}"


def _sure(one: Probed) -> str:
    return f"{one.confidence or 0:.0%} sure after {one.repetitions} repetitions"
