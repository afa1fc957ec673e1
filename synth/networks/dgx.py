"""DGX and other machines by name, one or several of them: ``dgx-a100:2`` is two hosts of eight GPUs.

A suffix sets the number of NICs in a host and the Gbit/s of each: ``dgx-a100/4x100:2`` has 4 of 100 Gbit/s.

Inside a host, GPUs either have direct links, as many as ``dgx.json`` lists for each pair, or share a switch
through one egress and one ingress port each. Every GPU has a link to every GPU of another host, through the
egress port of its own NIC and the ingress port of the other's. If there are fewer NICs than GPUs, consecutive
GPUs share one.

The rate of one threadblock (``threadblock_gbs``) is NCCL's tuning constant for a channel with LL128
(``perChMaxRingLL128Bws`` in tuning.cc of NCCL 2.x: V100 and A100 20, H100 36.7, B200 40 GB/s).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from typing import Any

from probes.base import UsageError, decimal, quoted, whole
from synth.collective import MOST_RANKS
from synth.network import Link, Network, build
from synth.networks.dimensions import require_links
from synth.networks.named import named_network

__all__ = [
    "Machine",
    "hosts_named",
    "is_pod",
    "machine_of",
    "pod",
    "pod_names",
    "pods_of",
    "threadblock_bytes_per_s",
]

# Alphas as in `synth.networks.nominal`: NVLink and xGMI 0.7 µs, between hosts 1.7 µs.
_LINK_ALPHA_S = 0.7e-6
_NIC_ALPHA_S = 1.7e-6
_MOST_MACHINES = MOST_RANKS >> 1
_NIC_GBIT = (0.1, 6400.0)


@dataclass(frozen=True)
class Machine:
    """A host: GPUs of a ``model`` such as "H100", NICs, direct ``links`` (GPU, GPU, number).

    ``links`` is () if a switch joins all GPUs.
    """

    gpus: int
    link_gbs: float
    links: tuple[tuple[int, int, int], ...]
    nics: int
    nic_gbs: float
    link_alpha_s: float = _LINK_ALPHA_S
    nic_alpha_s: float = _NIC_ALPHA_S
    model: str = ""


def pod_names() -> tuple[str, ...]:
    """Return the names of all machines."""
    return tuple(_table())


def is_pod(spec: str) -> bool:
    """Return whether ``spec`` names a machine; ``_`` counts as ``-``, and case does not matter."""
    return _plain(spec) in _table()


def threadblock_bytes_per_s(spec: str) -> float:
    """Return the rate of one threadblock of the machine's GPUs; infinite if none is published."""
    return 1e9 * float(_table()[_plain(spec)].get("threadblock_gbs", "inf"))


def hosts_named(spec: str) -> int | None:
    """Return the number of hosts after the colon in ``dgx-a100:2``; None without a colon."""
    return _count(spec) if ":" in spec else None


def pods_of(gpus: int, model: str) -> tuple[str, ...]:
    """Return the named machines with this many GPUs of this model, such as "A100 SXM4 40GB"."""
    words = model.replace("-", " ").split()
    return tuple(
        name for name, values in _table().items() if values["gpus"] == gpus and _gpu_of(values) in words
    )


def _gpu_of(values: dict[str, Any]) -> str:
    """Return the model in a title such as "8 A100 behind NVSwitches"."""
    return str(values["title"]).split()[1].rstrip(",")


def pod(spec: str, *, hold_alpha: bool = False) -> Network:
    """Return the network of a name such as ``dgx-a100:2``; raise UsageError if it is wrong."""
    from synth.networks.symmetric_families import symmetric_pod

    machine, count = machine_of(spec)
    hosts = [f"n{rank // machine.gpus}" for rank in range(count * machine.gpus)]
    listing = partial(_listed, spec, machine, count, hosts, hold_alpha)
    folding = partial(symmetric_pod, spec, hold_alpha=hold_alpha)
    return named_network(spec, hosts, listing, folding, hold_alpha=hold_alpha)


def _listed(spec: str, machine: Machine, count: int, hosts: Sequence[str], hold_alpha: bool) -> Network:
    inside = 2 * sum(parallel for *_, parallel in machine.links) or machine.gpus * (machine.gpus - 1)
    require_links(spec, count * (inside + (count - 1) * machine.gpus**2))
    return build(spec, hosts, _links(machine, count), hold_alpha=hold_alpha)


def _links(machine: Machine, count: int) -> Iterator[Link]:
    for host in range(count):
        yield from _inside(machine, host)
        for other in range(count):
            if other != host:
                yield from _between(machine, host, other)


def _inside(machine: Machine, host: int) -> Iterator[Link]:
    first, beta = host * machine.gpus, 1e-9 / machine.link_gbs
    for a, b, parallel in machine.links:
        for _ in range(parallel):
            yield Link(first + a, first + b, machine.link_alpha_s, beta)
            yield Link(first + b, first + a, machine.link_alpha_s, beta)
    if machine.links:
        return
    ranks = range(first, first + machine.gpus)
    for src in ranks:
        for dst in ranks:
            if src != dst:
                ports = (f"rank {src} switch egress", f"rank {dst} switch ingress")
                yield Link(src, dst, machine.link_alpha_s, beta, ports)


def _between(machine: Machine, host: int, other: int) -> Iterator[Link]:
    for a in range(machine.gpus):
        for b in range(machine.gpus):
            ports = (
                f"n{host} nic{a * machine.nics // machine.gpus} egress",
                f"n{other} nic{b * machine.nics // machine.gpus} ingress",
            )
            src, dst = host * machine.gpus + a, other * machine.gpus + b
            yield Link(src, dst, machine.nic_alpha_s, 1e-9 / machine.nic_gbs, ports)


def _count(spec: str) -> int:
    _, colon, number = spec.partition(":")
    if not colon:
        return 1
    found = whole(number, 1, _MOST_MACHINES)
    if found is None:
        raise UsageError(f"network {spec[:60]}: expected 1 to {_MOST_MACHINES} machines")
    return found


def machine_of(spec: str) -> tuple[Machine, int]:
    """Return (machine, number of hosts) of a name such as ``dgx-a100:2``; raise UsageError if it is wrong."""
    values = _table()[_plain(spec)]
    links = tuple((int(a), int(b), int(parallel)) for a, b, parallel in values["links"])
    nics, nic_gbs = _nics(spec, values)
    count, most = _count(spec), MOST_RANKS // values["gpus"]
    if count > most:
        raise UsageError(
            f"network {spec[:60]}: expected at most {most} of these machines, {MOST_RANKS} ranks"
        )
    model = _gpu_of(values)
    return Machine(values["gpus"], values["link_gbs"], links, nics, nic_gbs, model=model), count


def _nics(spec: str, values: dict[str, Any]) -> tuple[int, float]:
    """Return (NICs a host, GB/s of each), from ``spec`` or else from the machine."""
    _, slash, text = spec.partition(":")[0].partition("/")
    if not slash:
        return values["nics"], values["nic_gbs"]
    number, _, rate = text.partition("x")
    nics, gbit = whole(number, 1, values["gpus"]), decimal(rate, *_NIC_GBIT)
    if nics is None or gbit is None:
        raise UsageError(
            f"network {quoted(spec)}: expected up to {values['gpus']} NICs of {_NIC_GBIT[0]:g} to "
            f"{_NIC_GBIT[1]:g} Gbit/s behind the slash, such as 4x200"
        )
    return nics, gbit / 8


def _plain(spec: str) -> str:
    return spec.partition(":")[0].partition("/")[0].lower().replace("_", "-")


@cache
def _table() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(
        files("synth.networks").joinpath("dgx.json").read_text("utf-8")
    )
    return found
