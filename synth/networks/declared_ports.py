"""Add the PCIe links and the links between NUMA nodes of a topology to a measured network, as ports.

A profile has the costs of links and the ports that contention showed. It lacks ports inside hosts: the uplink
of a PCIe switch that several GPUs share, and the link between two NUMA nodes. The topology shows which of a
network's links cross them. Costs of links stay as measured; a link measured faster than the declared rate of
its port raises the port's rate.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from probes.base import UsageError, floats, ints
from probes.paths import Bandwidths, Expected, Paths, chain, functions, load, nearest_nic, numa_of
from probes.profiling import host_of
from probes.topology import Gpu, Host, Nic, PciDevice, Topology
from synth.network import Network

__all__ = ["with_declared_ports"]

_DEVICE = re.compile(r"cuda:(\d+)")
# Ports with at least this many times the rate of their fastest link are left out.
_WIDE = 1.5


def with_declared_ports(network: Network, devices: Sequence[str], topology: Topology) -> Network:
    """Return the network with the PCIe and NUMA ports of the topology; ``devices[rank]`` is like "cuda:0".

    Raises UsageError if the topology lacks a rank's host or GPU, or if a rank has no GPU: topologies do not
    state where in a host the memory of such a rank is.
    """
    homes = [_home(topology, host, device) for host, device in zip(network.hosts, devices, strict=True)]
    tables = load()
    rates: dict[str, float] = {}
    users: dict[str, list[int]] = defaultdict(list)
    ways = {host.name: _Ways(host, tables) for host, _ in homes}
    for link, (src, dst) in enumerate(zip(network.src.tolist(), network.dst.tolist(), strict=True)):
        (host, gpu), (other, peer) = homes[src], homes[dst]
        crossed: list[tuple[str, float]] = []
        if network.hosts[src] == network.hosts[dst]:
            crossed += ways[host.name].between(gpu, peer, network.hosts[src])
        else:
            near, far = nearest_nic(host, gpu), nearest_nic(other, peer)
            crossed += ways[host.name].between(gpu, near, network.hosts[src]) if near else []
            crossed += ways[other.name].between(far, peer, network.hosts[dst]) if far else []
        for port, gbs in crossed:
            rates[port] = gbs
            users[port].append(link)
    return _with_ports(
        network, {port: users[port] for port in users if _binds(network, users[port], rates[port])}, rates
    )


def _home(topology: Topology, name: str, device: str) -> tuple[Host, Gpu]:
    host = host_of(topology, name)
    found = _DEVICE.fullmatch(device)
    if found is None:
        raise UsageError(
            f"a rank on {name} has device {device!r} and is not on a GPU: the topology does not say where "
            "its memory is",
            hint="Without the topology the profile keeps its own ports.",
        )
    number = int(found[1])
    if number >= len(host.usable_gpus):
        raise UsageError(f"the topology has {len(host.usable_gpus)} GPUs on {host.name}, not cuda:{number}")
    return host, host.usable_gpus[number]


def _binds(network: Network, links: Sequence[int], gbs: float) -> bool:
    """Return whether several links share the port, and its rate can limit them."""
    fastest_gbs = 1e-9 / float(network.beta_s_per_byte[links].min())
    return len(links) > 1 and gbs < _WIDE * fastest_gbs


class _Ways:
    """The ports on the paths between the devices of one host."""

    def __init__(self, host: Host, tables: Bandwidths) -> None:
        self._expected = Expected(host, tables)
        self._devices: Mapping[str, PciDevice] = functions(host)
        self._paths = Paths(host)

    def between(self, a: Gpu | Nic, b: Gpu | Nic, name: str) -> list[tuple[str, float]]:
        """Return (port, GB/s) along the path from a to b; [] over NVLink. ``name`` is the host's."""
        path = self._paths.between(a, b)
        if path in ("LOC", "NVL", "NVB"):
            return []
        # A GPU with a chip-to-chip link uses it instead of its own PCIe link.
        up, down = (
            [] if path == "C2C" and isinstance(end, Gpu) else chain(end.bus_id, self._devices)
            for end in (a, b)
        )
        shared = {device.bus_id for device in up} & {device.bus_id for device in down}
        found = list(self._wires(up, shared, name, "up"))
        nodes = [numa_of(device, self._devices) for device in (a, b)]
        if not shared and None not in nodes and nodes[0] != nodes[1]:
            rates = [gbs for device in (a, b) if (gbs := self._expected.cpu_gbs(device))]
            found += [(f"{name} NUMA {nodes[0]} to {nodes[1]}", min(rates))] if rates else []
        return [*found, *self._wires(down, shared, name, "down")]

    def _wires(
        self, above: Sequence[PciDevice], shared: set[str], name: str, way: str
    ) -> Iterator[tuple[str, float]]:
        for device in above:
            if device.bus_id not in shared and (gbs := self._expected.pcie_gbs(device)):
                yield f"{name} PCIe {device.bus_id} {way}", gbs


def _with_ports(network: Network, users: Mapping[str, Sequence[int]], rates: Mapping[str, float]) -> Network:
    names = sorted(set(users) - set(network.ports))
    start, own = network.link_port_start, network.link_port
    ports: list[list[int]] = [own[start[row] : start[row + 1]].tolist() for row in range(network.links)]
    for number, name in enumerate(names, len(network.ports)):
        for link in users[name]:
            ports[link].append(number)
    known = network.port_beta_s_per_byte
    before = known if len(known) else np.zeros(len(network.ports))
    return replace(
        network,
        ports=(*network.ports, *names),
        link_port_start=ints(np.cumsum([0, *map(len, ports)])),
        link_port=ints([number for row in ports for number in row]),
        port_beta_s_per_byte=floats([*before, *(1e-9 / rates[name] for name in names)]),
    )
