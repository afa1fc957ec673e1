"""Lookup of devices by their usual names: GPU0, NIC1, mlx5_0, a bus id, host:GPU0."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass

from probes.base import UsageError, normal_bus_id
from probes.topology import Gpu, Host, Nic, Topology, label

__all__ = ["Named", "pair_named"]


@dataclass(frozen=True)
class Named:
    """One device and its host."""

    host: Host
    device: Gpu | Nic

    @property
    def label(self) -> str:
        """The usual name of the device, such as GPU0 or mlx5_0."""
        return label(self.device)

    @property
    def bus_id(self) -> str:
        """The PCI function of the device; "" if there is none."""
        return self.device.bus_id


def pair_named(topology: Topology, a: str, b: str) -> tuple[Named, Named]:
    """Return two devices by name; if several hosts have a name, the host of the other device decides.

    Raises UsageError if a name matches no device, or devices of several hosts.
    """
    found = [_candidates(topology, name) for name in (a, b)]
    for mine, other in ((0, 1), (1, 0)):
        if len(found[mine]) > 1 and len(found[other]) == 1:
            here = [one for one in found[mine] if one.host is found[other][0].host]
            found[mine] = here or found[mine]
    return _only(found[0], a, topology), _only(found[1], b, topology)


def _only(found: list[Named], name: str, topology: Topology) -> Named:
    if len(found) == 1:
        return found[0]
    if found:
        hosts = ", ".join(one.host.name for one in found[:4]) + (", …" if len(found) > 4 else "")
        raise UsageError(
            f"{name} is in {len(found)} hosts ({hosts}): say which",
            hint=f"For example {found[0].host.name}:{name}.",
        )
    known = list(
        dict.fromkeys(word for host in topology.hosts for _, words in _names(host) for word in words)
    )
    near = difflib.get_close_matches(name, known, 3, 0.5) or known[:6]
    raise UsageError(
        f"there is no device {name!r}",
        hint=f"Known are {', '.join(near)}." if near else "There is none at all.",
    )


def _candidates(topology: Topology, name: str) -> list[Named]:
    found = []
    for host in topology.hosts:
        own = name.removeprefix(f"{host.name}:")
        if own != name:
            return [Named(host, device) for device, words in _names(host) if _is_named(own, words)][:1]
        found += [Named(host, device) for device, words in _names(host) if _is_named(name, words)][:1]
    return found


def _is_named(name: str, words: list[str]) -> bool:
    try:
        wanted = normal_bus_id(name)
    except ValueError:
        wanted = name.lower()
    return wanted in (word.lower() for word in words)


def _names(host: Host) -> Iterator[tuple[Gpu | Nic, list[str]]]:
    for gpu in host.gpus:
        yield gpu, [f"GPU{gpu.index}", gpu.bus_id, *([gpu.uuid] if gpu.uuid else [])]
    for number, nic in enumerate(host.physical_nics):
        yield nic, [word for word in (f"NIC{number}", nic.name, nic.rdma_device, nic.bus_id) if word]
    for nic in host.nics:
        if not nic.physical:
            yield nic, [nic.name]
