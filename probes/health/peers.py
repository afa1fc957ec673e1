"""Pairs of GPUs that cannot reach each other's memory directly, and the likely reason."""

from __future__ import annotations

from collections.abc import Iterator

from probes.base import plural, some
from probes.health.model import HostHealth, HostProblem, Severity
from probes.paths import PEER_REFUSALS, nvlink_of
from probes.topology import Host, label

__all__ = ["missing_peers", "peer_problems"]

# The driver's words for GPUs or a chipset without support for peer access. An IOMMU is not blamed for these.
# NVIDIA's driver answers CNS for GeForce cards too.
_BY_DESIGN = ("GNS", "CNS", "NS")
# The most pairs or bridges that a sentence names; it counts the others.
_LISTED = 6
# The argument of setpci that clears the ACS control register, and so stops redirecting requests between
# peers.
_NO_ACS = "ECAP_ACS+6.w=0000"


def missing_peers(host: Host) -> tuple[str, ...]:
    """Return each pair of GPUs without direct reads and the driver's word for the reason: "GPU0-GPU1 CNS"."""
    return tuple(f"{a}-{b} {word}" for a, b, word in _refused(host))


def peer_problems(host: Host, health: HostHealth) -> list[HostProblem]:
    """Return one problem for each reason why pairs of GPUs cannot read each other directly."""
    pairs: dict[str, list[str]] = {}
    for a, b, word in _refused(host):
        pairs.setdefault(word, []).append(f"{a}-{b}")
    found = []
    for word, names in pairs.items():
        part = names[0] if len(names) == 1 else plural(len(names), "GPU pair")
        severity, likely, remedy = _reason(host, health, word)
        text = (
            f"{some(names, _LISTED)} cannot read each other directly: {PEER_REFUSALS[word]} (the driver says "
            f"{word}). {likely}Data goes over the memory of the host."
        )
        found.append(HostProblem(health.host, part, "peer_to_peer", severity, text, remedy))
    return found


def _refused(host: Host) -> Iterator[tuple[str, str, str]]:
    """Yield (GPU, GPU, word) for each pair of usable GPUs without direct reads."""
    matrix = next((one for one in host.matrices if one.what == "p2p_read"), None)
    gpus = host.usable_gpus if matrix else ()
    for at, gpu in enumerate(gpus):
        for other in gpus[at + 1 :]:
            assert matrix is not None
            words = (matrix.cell(gpu.bus_id, other.bus_id), matrix.cell(other.bus_id, gpu.bus_id))
            word = next((word for word in words if word in PEER_REFUSALS and word != "U"), "")
            if word:
                yield label(gpu), label(other), word


def _reason(host: Host, health: HostHealth, word: str) -> tuple[Severity, str, str]:
    """Return the severity, a sentence on the likely reason, and the remedy."""
    if word == "DR":
        remedy = (
            "Find the setting: grep -r NVreg /etc/modprobe.d. Remove it, then reload the driver or reboot."
        )
        return "fault", "", remedy
    if health.virtual_machine:
        likely = f"The virtual machine ({health.virtual_machine}) may hide the way. "
        return "remark", likely, "Ask the provider for peer access between the GPUs of a guest."
    if any(nvlink_of(gpu) == "board" for gpu in host.usable_gpus):
        remedy = "Restart the fabric manager (systemctl restart nvidia-fabricmanager), then see "
        return "fault", "These GPUs have NVLink on their board. ", remedy + "nvidia-smi topo -p2p r."
    if health.acs:
        likely = f"ACS sends traffic between peers over the processor at {some(health.acs, _LISTED)}. "
        remedy = f"Switch ACS off in the BIOS, or until the next boot: setpci -s {health.acs[0]} {_NO_ACS}"
        return "fault", likely, f"{remedy}{', and so for each of these bridges' if health.acs[1:] else ''}."
    if health.iommu == "translating" and word not in _BY_DESIGN:
        likely = "The IOMMU translates addresses, maybe also those between peers. "
        return "fault", likely, "Boot with iommu=pt, or switch the IOMMU off in the BIOS."
    return "remark", "", "See what the driver allows: nvidia-smi topo -p2p r."
