"""The recorded DGX A100, and what may happen to such a machine, each change as a function of its host."""

import functools
from dataclasses import replace
from pathlib import Path

from probes.detection import merge
from probes.topology import Topology

MACHINES = Path(__file__).parents[1] / "machines"


@functools.cache
def recorded(name="linux-nvidia-dgxa100"):
    """A recorded machine as detection sees it."""
    return merge.combined([merge.read_recording(MACHINES / name)])


def with_host(topology, change):
    """The topology with its only host changed."""
    return replace(topology, hosts=(change(topology.hosts[0]),))


def cluster(topology, names, changes=()):
    """Hosts of these names, all as the only host of ``topology`` but for ``changes`` (name: function)."""
    hosts = [replace(topology.hosts[0], name=name) for name in names]
    return Topology(tuple(dict(changes).get(host.name, lambda same: same)(host) for host in hosts))


def edited(table, key, **fields):
    """A change of the records of one table whose bus id or name is ``key``."""

    def change(host):
        return replace(
            host,
            **{
                table: tuple(
                    replace(one, **fields)
                    if key in (getattr(one, "bus_id", ""), getattr(one, "name", ""))
                    else one
                    for one in getattr(host, table)
                )
            },
        )

    return change


def without_gpu(bus_id):
    """A GPU fell off the bus."""

    def change(host):
        return replace(
            host,
            pci=tuple(one for one in host.pci if one.bus_id != bus_id),
            gpus=tuple(
                replace(one, peers=tuple(peer for peer in one.peers if peer != bus_id))
                for one in host.gpus
                if one.bus_id != bus_id
            ),
            fabric=tuple(one for one in host.fabric if bus_id not in (one.source, one.target)),
            matrices=(),
        )

    return change


def without_nic(name):
    """A port is gone."""
    return lambda host: replace(host, nics=tuple(nic for nic in host.nics if nic.name != name))


def renumbered(host, shift=0x40):
    """Every bus has another number, as after a change of the firmware."""

    def name(bus_id):
        if bus_id.count(":") != 2 or not bus_id.startswith("0000:"):
            return bus_id
        return f"0000:{(int(bus_id[5:7], 16) + shift) % 256:02x}{bus_id[7:]}"

    return replace(
        host,
        pci=tuple(replace(one, bus_id=name(one.bus_id), parent=name(one.parent)) for one in host.pci),
        gpus=tuple(
            replace(one, bus_id=name(one.bus_id), peers=tuple(map(name, one.peers))) for one in host.gpus
        ),
        nics=tuple(replace(one, bus_id=name(one.bus_id)) for one in host.nics),
        fabric=tuple(replace(one, source=name(one.source), target=name(one.target)) for one in host.fabric),
        matrices=(),
    )


def without_serials(host):
    """Another machine of the same kind: what is its own is not the same."""
    return replace(
        host,
        gpus=tuple(replace(one, uuid="") for one in host.gpus),
        nics=tuple(replace(one, mac="", guid="", addresses=()) for one in host.nics),
    )
