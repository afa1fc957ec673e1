"""Offers in one line: a machine and its NICs, or bare rates.

| text                       | meaning                                                                 |
|----------------------------|-------------------------------------------------------------------------|
| ``dgx-h100``               | a machine of ``synth.networks`` with the NICs that it is sold with       |
| ``dgx-a100/8x200``         | the same with 8 NICs of 200 Gbit/s each                                  |
| ``hgx-b200/8x400``         | a board of GPUs, which comes without NICs, in a host with 8 NICs         |
| ``8x400``, ``8x400Gbit/s`` | hosts with 8 NICs of 400 Gbit/s each                                     |
| ``50GB/s``                 | hosts with one NIC of 50 GB/s                                            |

The latency from rank to rank (``50us``) and a fabric of ``GOODPUT`` (``roce``) may follow, after commas.
"""

from __future__ import annotations

import re
from typing import Final

from probes.base import (
    UsageError,
    decimal,
    format_rate,
    meant,
    parse_rate,
    parse_seconds,
    plural,
    quoted,
    whole,
)
from probes.localization import Bought
from probes.paths import architecture_of_model, load
from synth.networks import Machine, is_pod, machine_of, pod_names

__all__ = ["GOODPUT", "bought", "payload_rate"]

# Bytes on the wire around an Ethernet frame's payload (IEEE 802.3): preamble and start of frame 8, header 14,
# checksum 4, gap 12.
_FRAME_BYTES: Final = 38
# IPv4 header 20 (RFC 791), TCP header 20 with 12 bytes of timestamps (RFC 9293, RFC 7323).
_IP_TCP_BYTES: Final = 52
# RoCEv2 in a frame: IPv4 20, UDP 8, base transport header 12, invariant checksum 4 (InfiniBand Architecture
# Specification, Annex A17). InfiniBand: local route header 8, base transport header 12, checksums 4 and 2.
_ROCE_BYTES: Final = 44
_INFINIBAND_BYTES: Final = 26
# The largest MTU of RDMA, which fabrics of GPU clusters use.
_RDMA_MTU_BYTES: Final = 4096


def _tcp(mtu_bytes: int) -> float:
    return (mtu_bytes - _IP_TCP_BYTES) / (mtu_bytes + _FRAME_BYTES)


# The share of a NIC's rate that is payload, by fabric and MTU. The token buckets of an emulated network
# (`exec.lab`) count headers, but neither preamble, checksum nor gap. So the share there, 1448 of 1514 bytes,
# is a little above the share of "tcp".
GOODPUT: Final = {
    "tcp": _tcp(1500),
    "tcp9000": _tcp(9000),
    "roce": _RDMA_MTU_BYTES / (_RDMA_MTU_BYTES + _ROCE_BYTES + _FRAME_BYTES),
    "infiniband": _RDMA_MTU_BYTES / (_RDMA_MTU_BYTES + _INFINIBAND_BYTES),
}
# NICs from this rate on are assumed to use RDMA: the slowest NIC in dgx.json has it, the 100 Gbit/s of DGX-1.
# Slower NICs are assumed to carry TCP on Ethernet with its standard MTU.
_RDMA_BYTES_PER_S: Final = 12.5e9
# The most NICs of a host in a text such as ``8x400``: a host has up to 16 GPUs, each with up to two NICs.
_MOST_NICS: Final = 32
# The least and the most Gbit/s of a NIC, as in `synth.networks`.
_NIC_GBIT: Final = (0.1, 6400.0)
_COUNTED = re.compile(r"([0-9]{1,4})\s*x\s*(.+)", re.IGNORECASE)
_BARE = re.compile(r"([0-9.]+)\s*g?", re.IGNORECASE)
# A board of GPUs (HGX) has the same links between GPUs as the machine with these GPUs (DGX).
_BOARD, _MACHINE = "hgx-", "dgx-"
_FORMS = "For example dgx-h100/8x400, 8x400, 400Gbit/s, or 100Mbit/s,50us."


def bought(text: str) -> Bought:
    """Return what was bought, from a line such as ``dgx-h100/8x400`` or ``100Mbit/s,50us``.

    The rate inside a host is the delivered rate of its NVLink or xGMI (`probes.paths`) from one GPU to any
    other. It is None for bare rates, and for a machine that does not link all pairs alike. Raises UsageError
    with the known machines for an unknown name.
    """
    first, *others = (part.strip() for part in text.split(","))
    latency_s, fabric = _qualifiers(others, text)
    name = first.lower().replace("_", "-")
    machine = name.partition("/")[0]
    inside_bytes_per_s = None
    if re.match(r"[a-z]", name):
        nics, rate = _machine_nics(name, text)
        inside_bytes_per_s = _inside_bytes_per_s(_as_machine(machine))
    else:
        nics, rate = _counted(first, text)
    return Bought(text.strip(), rate, nics, _goodput(rate, fabric), latency_s, inside_bytes_per_s)


def payload_rate(text: str, name: str) -> float:
    """Return the bytes/s of payload that a link of this rate carries, with a fabric: ``100Gbit/s,tcp9000``.

    A rate in bits is a line rate, which includes headers; a rate in bytes is payload alone. The message of
    the UsageError for a wrong rate begins with ``name``.
    """
    rate, comma, fabric = text.partition(",")
    bytes_per_s = parse_rate(rate, name)
    if comma and fabric.strip().lower() not in GOODPUT:
        raise UsageError(
            f"{name}: expected a fabric ({', '.join(GOODPUT)}) behind the comma of {quoted(text)}, "
            f"found {quoted(fabric.strip())}"
        )
    return bytes_per_s if "B" in rate else bytes_per_s * _goodput(bytes_per_s, fabric.strip().lower())


def _goodput(bytes_per_s: float, fabric: str) -> float:
    """Return the share of payload on a NIC of this rate; the ``fabric`` is "" if it was not stated."""
    return GOODPUT[fabric or ("roce" if bytes_per_s >= _RDMA_BYTES_PER_S else "tcp")]


def _qualifiers(parts: list[str], text: str) -> tuple[float | None, str]:
    """Return (latency in seconds or None, fabric or "") from what follows the first comma."""
    latency_s, fabric = None, ""
    for part in parts:
        if part.lower() in GOODPUT and not fabric:
            fabric = part.lower()
        elif latency_s is None and re.match(r"[0-9.]", part):
            latency_s = parse_seconds(part, "latency", positive=True)
        else:
            raise UsageError(
                f"what was bought: expected a latency such as 50us or a fabric ({', '.join(GOODPUT)}), each "
                f"once, behind the comma of {quoted(text)}, found {quoted(part)}"
            )
    return latency_s, fabric


def _as_machine(name: str) -> str:
    return name.replace(_BOARD, _MACHINE, 1) if name.startswith(_BOARD) else name


def _machine_nics(name: str, text: str) -> tuple[int, float]:
    """Return (NICs per host, bytes/s of each) of a named machine."""
    machine, slash, _ = name.partition("/")
    if ":" in name:
        raise UsageError(
            f"what was bought: expected one machine without a number of hosts, found {quoted(text)}"
        )
    if not is_pod(_as_machine(machine)):
        known = sorted(pod_names())
        close = meant(machine, [*known, *(one.replace(_MACHINE, _BOARD, 1) for one in known)])
        raise UsageError(
            f"what was bought: there is no machine {quoted(machine)}",
            hint=f"{close + '; ' if close else ''}known: {', '.join(known)}. {_FORMS}",
        )
    if machine.startswith(_BOARD) and not slash:
        raise UsageError(
            f"what was bought: {machine} is a board of GPUs without NICs",
            hint=f"Add the NICs of the host: {machine}/8x400.",
        )
    found, _ = machine_of(_as_machine(name))
    return found.nics, found.nic_gbs * 1e9


def _counted(first: str, text: str) -> tuple[int, float]:
    """Return (NICs per host, bytes/s of each) of ``8x400``, ``8x400Gbit/s`` or ``50GB/s``."""
    counted = _COUNTED.fullmatch(first)
    if counted is None:
        return 1, _rate(first, text, bare=False)
    nics = whole(counted[1], 1, _MOST_NICS)
    if nics is None:
        raise UsageError(
            f"what was bought: expected 1 to {plural(_MOST_NICS, 'NIC')} a host, found {quoted(text)}"
        )
    return nics, _rate(counted[2], text, bare=True)


def _rate(written: str, text: str, *, bare: bool) -> float:
    """Return bytes/s; with ``bare``, a number without a unit is in Gbit/s.

    ``parse_rate`` reads ``b`` as bits and ``B`` as bytes.
    """
    number = _BARE.fullmatch(written)
    if bare and number:
        gbit = decimal(number[1], *_NIC_GBIT)
        if gbit is not None:
            return gbit / 8 * 1e9
        ends = " to ".join(format_rate(end / 8 * 1e9) for end in _NIC_GBIT)
        raise UsageError(f"what was bought: expected NICs of {ends}, found {quoted(text)}")
    try:
        return parse_rate(_with_usual_case(written), "what was bought")
    except UsageError as error:
        raise UsageError(
            f"what was bought: expected a machine, or a rate with its unit, found {quoted(text)}",
            hint=_FORMS,
        ) from error


def _with_usual_case(written: str) -> str:
    """Return a rate with bit, ps and /s in lower case, as ``parse_rate`` needs them."""
    return re.sub(r"(?i)bit|ps$|/s$", lambda found: found[0].lower(), written)


def _inside_bytes_per_s(name: str) -> float | None:
    """Return the delivered rate from a GPU to any other of its host; None if pairs differ or are unlinked."""
    machine, _ = machine_of(name)
    links = _links_of_each_pair(machine)
    arch = architecture_of_model(machine.model)
    xgmi = load().xgmi.get(_XGMI.get(machine.model, ""))
    generation = load().nvlink.get(arch) or xgmi
    if generation is None or links == 0:
        return None
    return 1e9 * generation.gbs * (generation.most if links is None else links)


# The architecture of AMD's accelerators (https://rocm.docs.amd.com, "GPU hardware specifications").
_XGMI: Final = {"MI250X": "gfx90a", "MI300X": "gfx942"}


def _links_of_each_pair(machine: Machine) -> int | None:
    """Return the number of links of each pair of GPUs: 0 if pairs differ, None behind a switch."""
    if not machine.links:
        return None
    numbers = {parallel for *_, parallel in machine.links}
    alike = len(numbers) == 1 and len(machine.links) == machine.gpus * (machine.gpus - 1) // 2
    return numbers.pop() if alike else 0
