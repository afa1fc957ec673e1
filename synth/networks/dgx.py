"""DGX and other machines by name, one or several of them: ``dgx-a100:2`` is two hosts of eight GPUs.

| name                    | is                                                                             |
|-------------------------|--------------------------------------------------------------------------------|
| dgx-h100:4              | four hosts; one switch joins all NICs                                          |
| dgx-a100/4x100:2        | 4 NICs of 100 Gbit/s in a host instead of its own                              |
| dgx-h100:64/rail        | NIC i of each host on leaf i; traffic between rails crosses the spine          |
| dgx-h100:64/rail/2      | half as many uplinks as NICs at each leaf                                      |
| dgx-h100:4x16/rail      | 4 units of 16 hosts with leaves of their own; the spine joins them             |
| gb200-nvl72:4           | four NVLink domains of 72 GPUs, joined by NICs; a domain counts as one host    |
| dgx-spark:4/ring        | cables from each host to the next and the one before it                        |
| dgx-h100+nvls:4         | the switches of each host sum and copy (NVLink SHARP)                          |

``dgx.json`` lists the machines. Rates are line rates in GB/s each way; protocols cost about 20 % of the rate
on NVLink, 25 % on xGMI and 4 % on NICs. ``source`` says where the rates are published, ``estimate`` which
values no vendor publishes. `synth.networks.host_links` makes the links.

The rate of one threadblock (``threadblock_gbs``) is NCCL's tuning constant for a channel with LL128
(``perChMaxRingLL128Bws`` in tuning.cc of NCCL 2.x: V100 and A100 20, H100 36.7, B200 40 GB/s).
``multiprocessors`` counts those enabled in a GPU; docs/reference/networks.md has the sources. With
``+nvls``, a byte that a switch sums or copies holds a GPU's NVLinks for longer than another byte, by NCCL's
factor ``nvls_efficiency`` (``nvlsEfficiency`` in tuning.cc of NCCL 2.30.7: Hopper 0.85, Blackwell 0.74).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache, partial
from importlib.resources import files
from typing import Any

from probes.base import UsageError, decimal, quoted, whole
from synth.collective import MOST_RANKS
from synth.network import Network, build
from synth.networks.dimensions import require_links
from synth.networks.host_links import NVLINK_ALPHA_S, Fabric, Machine, host_links, link_count
from synth.networks.named import named_network

__all__ = [
    "fabric_of",
    "hosts_named",
    "is_pod",
    "machine_of",
    "pod",
    "pod_aliases",
    "pod_names",
    "pods_of",
    "public_busbw_gbs",
    "threadblock_bytes_per_s",
    "trays_of",
]

_MOST_MACHINES = MOST_RANKS >> 1
# The least and the largest rate of a NIC in a name, far beyond any NIC that is sold, to catch mistakes.
_NIC_GBIT = (0.1, 6400.0)
# The end of the name of a machine whose switches sum and copy.
_NVLS = "+nvls"
_FABRIC = re.compile(r"(?:(?P<units>[^/x]*)x)?(?P<hosts>[^/x]*)(?:/(?P<kind>[^/]*)(?:/(?P<over>[^/]*))?)?")


def pod_names() -> tuple[str, ...]:
    """Return the names of all machines."""
    return tuple(_table())


def pod_aliases() -> tuple[str, ...]:
    """Return other names of the same machines, such as nvl72."""
    return tuple(_aliases())


def is_pod(spec: str) -> bool:
    """Return whether ``spec`` names a machine; ``_`` counts as ``-``, and case does not matter."""
    return _plain(spec) in _table()


def threadblock_bytes_per_s(spec: str) -> float:
    """Return the rate of one threadblock of the machine's GPUs; infinite if none is published."""
    return 1e9 * float(_table()[_plain(spec)].get("threadblock_gbs", "inf"))


def hosts_named(spec: str) -> int | None:
    """Return the number of hosts after the colon in ``dgx-a100:2``; None without a colon."""
    return fabric_of(spec).count if ":" in spec else None


def trays_of(spec: str) -> int:
    """Return how many parts of the machine have an operating system of their own: 18 in an NVL72."""
    return int(_table()[_plain(spec)].get("trays", 1))


def public_busbw_gbs(spec: str) -> Mapping[str, float]:
    """Return what others measured for a large all_reduce on one such machine, by NCCL's algorithm.

    The sources are in docs/explanation/results/normal-bandwidth.md. The result is empty for several machines
    and where nothing is known.
    """
    if not is_pod(spec) or hosts_named(spec) not in (None, 1):
        return {}
    found: Mapping[str, float] = _table()[_plain(spec)].get("public_busbw_gbs", {})
    return found


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
    fabric = fabric_of(spec)
    if machine.gpus * count < 2:
        raise UsageError(
            f"network {spec}: a network needs at least two ranks, found one machine of one GPU",
            hint=f"several of them are {_plain(spec)}:2",
        )
    if fabric.kind == "ring" and machine.gpus > 1:
        raise UsageError(
            f"network {spec}: cables in a ring join machines of one GPU, such as dgx-spark:4/ring; "
            f"{_plain(spec)} has {machine.gpus}"
        )
    hosts = [f"n{rank // machine.gpus}" for rank in range(count * machine.gpus)]
    multimem_s_per_byte = _multimem_s_per_byte(spec, machine)
    if multimem_s_per_byte and hold_alpha:
        raise UsageError(f"network {spec}: operations of switches have no model in which alpha holds links")
    listing = partial(_listed, spec, machine, fabric, hosts, hold_alpha)
    # A symmetric schedule has sends between ranks only.
    folding = None if multimem_s_per_byte else partial(symmetric_pod, spec, hold_alpha=hold_alpha)
    return named_network(
        spec,
        hosts,
        listing,
        folding,
        hold_alpha=hold_alpha,
        multiprocessors=machine.multiprocessors,
        multimem_s_per_byte=multimem_s_per_byte,
    )


def _multimem_s_per_byte(spec: str, machine: Machine) -> float:
    """Return `Network.multimem_s_per_byte`; raise UsageError if the machine's switches cannot sum."""
    if not _model(spec).endswith(_NVLS):
        return 0.0
    efficiency = _table()[_plain(spec)].get("nvls_efficiency")
    if efficiency is None:
        able = ", ".join(name for name, values in _table().items() if "nvls_efficiency" in values)
        raise UsageError(
            f"network {quoted(spec)}: no switch of {_plain(spec)} sums or copies (NVLink SHARP)",
            hint=f"those of {able} do",
        )
    return 1e-9 / machine.link_gbs / float(efficiency)


def _listed(spec: str, machine: Machine, fabric: Fabric, hosts: list[str], hold_alpha: bool) -> Network:
    require_links(spec, link_count(machine, fabric))
    return build(spec, hosts, host_links(machine, fabric), hold_alpha=hold_alpha)


def fabric_of(spec: str) -> Fabric:
    """Return the fabric of a name such as ``dgx-h100:64/rail/2``; raise UsageError if it is wrong."""
    _, colon, text = spec.partition(":")
    if not colon:
        return Fabric(1)
    found = _FABRIC.fullmatch(text.lower())
    if found is None:
        raise _wrong_fabric(spec)
    hosts = whole(found["hosts"], 1, _MOST_MACHINES)
    units = 1 if found["units"] is None else whole(found["units"], 1, _MOST_MACHINES)
    if hosts is None or units is None or hosts * units > _MOST_MACHINES:
        raise UsageError(f"network {spec[:60]}: expected 1 to {_MOST_MACHINES} machines")
    kind = "switch" if found["kind"] is None else found["kind"]
    if kind not in ("rail", "ring") and found["kind"] is not None:
        raise _wrong_fabric(spec)
    if kind != "rail" and (found["over"] is not None or found["units"] is not None):
        raise _wrong_fabric(spec)
    over = 1 if found["over"] is None else whole(found["over"], 1, _MOST_MACHINES)
    if over is None or hosts % over:
        raise UsageError(
            f"network {quoted(spec)}: a leaf has {hosts} machines below it: expected an oversubscription "
            f"that divides {hosts}, found {quoted(found['over'])}"
        )
    return Fabric(hosts, units, kind, over)


def _wrong_fabric(spec: str) -> UsageError:
    name = _plain(spec)
    return UsageError(
        f"network {quoted(spec)}: expected a number of machines behind the colon, then a fabric",
        hint=f"such as {name}:64, {name}:64/rail, {name}:64/rail/2 (oversubscribed), {name}:4x16/rail "
        "(4 units of 16), dgx-spark:4/ring",
    )


def machine_of(spec: str) -> tuple[Machine, int]:
    """Return (machine, number of hosts) of a name such as ``dgx-a100:2``; raise UsageError if it is wrong."""
    values = _table()[_plain(spec)]
    links = tuple((int(a), int(b), int(parallel)) for a, b, parallel in values["links"])
    nics, nic_gbs = _nics(spec, values)
    trays = trays_of(spec) if nics % trays_of(spec) == 0 else 1
    count, most = fabric_of(spec).count, MOST_RANKS // values["gpus"]
    if count > most:
        raise UsageError(
            f"network {spec[:60]}: expected at most {most} of these machines, {MOST_RANKS} ranks"
        )
    link_alpha_s = 1e-6 * values["link_alpha_us"] if "link_alpha_us" in values else NVLINK_ALPHA_S
    machine = Machine(
        values["gpus"],
        values["link_gbs"],
        links,
        nics,
        nic_gbs,
        link_alpha_s=link_alpha_s,
        trays=trays,
        model=_gpu_of(values),
        multiprocessors=values["multiprocessors"],
    )
    return machine, count


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
            f"{_NIC_GBIT[1]:g} Gbit/s behind the slash, such as 4x200",
            hint=f"a fabric follows the number of machines: {_plain(spec)}:64/rail",
        )
    return nics, gbit / 8


def _plain(spec: str) -> str:
    """Return the machine's name as ``dgx.json`` writes it."""
    name = _model(spec).removesuffix(_NVLS)
    return _aliases().get(name, name)


def _model(spec: str) -> str:
    """Return the part of a name in front of NICs and fabric, such as ``dgx-h100+nvls``."""
    return spec.partition(":")[0].partition("/")[0].lower().replace("_", "-")


@cache
def _aliases() -> dict[str, str]:
    return {alias: name for name, values in _table().items() for alias in values.get("aliases", ())}


@cache
def _table() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(
        files("synth.networks").joinpath("dgx.json").read_text("utf-8")
    )
    return found
