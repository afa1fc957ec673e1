"""Matching of devices between two machines: by identity, by bus id, else by model and position."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypeVar

from probes.base import plain_guid
from probes.paths import chain, functions
from probes.topology import Gpu, Host, Nic

__all__ = ["Matched", "Pairs", "matchings", "model"]

_Device = TypeVar("_Device", Gpu, Nic)
_Placed: TypeAlias = tuple[_Device, object, int]
_BRIDGES = ("upstream", "switch")


@dataclass
class Pairs(Generic[_Device]):
    """Devices of one kind: pairs (reference, found), and devices without a partner."""

    both: list[tuple[_Device, _Device]] = field(default_factory=list)
    missing: list[_Device] = field(default_factory=list)
    extra: list[_Device] = field(default_factory=list)


@dataclass(frozen=True)
class Matched:
    """Two machines with their GPUs and the ports of their cards matched."""

    reference: Host
    found: Host
    gpus: Pairs[Gpu]
    nics: Pairs[Nic]


def matchings(reference: Host, found: Host) -> Iterator[Matched]:
    """Yield two matchings: one that uses bus ids, and one without them (for renumbered buses)."""
    for by_bus in (True, False):
        gpus = _pairs(
            reference.gpus,
            found.gpus,
            [lambda gpu: gpu.uuid, *([lambda gpu: gpu.bus_id] if by_bus else [])],
            lambda a, b: _same_model(a, reference, b, found),
            (_Positions(reference), _Positions(found)),
        )
        nics = _pairs(
            reference.physical_nics,
            found.physical_nics,
            [
                lambda nic: nic.mac,
                *([_place, lambda nic: nic.bus_id] if by_bus else []),
                _name,
                lambda nic: _guid(nic) and f"{_guid(nic)}/{nic.port}",
            ],
            lambda a, b: _same_card(a, reference, b, found),
            (_Positions(reference), _Positions(found)),
        )
        yield Matched(reference, found, gpus, nics)


def model(device: Gpu | Nic, host: Host) -> tuple[str, str]:
    """Return (PCI vendor and device, architecture); "" if unknown."""
    entry = functions(host).get(device.bus_id)
    known = entry is not None and entry.vendor not in ("", "0xffff") and entry.device not in ("", "0xffff")
    ids = f"{entry.vendor}:{entry.device}" if entry is not None and known else ""
    return ids, device.arch if isinstance(device, Gpu) else ""


class _Positions:
    """Positions of devices: what is under the same switch, and the index within the NUMA node."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._functions = functions(host)

    def of(self, device: Gpu | Nic) -> tuple[object, int]:
        """Return (surroundings, its index among devices of its kind on its NUMA node).

        The surroundings are the number of switch bridges above the device, and the numbers of GPUs and of all
        devices below the nearest bridge.
        """
        above = self._above(device)
        everyone: list[Gpu | Nic] = [*self._host.gpus, *self._host.physical_nics]
        near = [one for one in everyone if self._above(one)[:1] == above[:1]]
        surroundings = (len(above), sum(isinstance(one, Gpu) for one in near), len(near)) if above else ()
        kind: Sequence[Gpu | Nic] = self._host.gpus if isinstance(device, Gpu) else self._host.physical_nics
        row = sorted(one.bus_id for one in kind if one.numa == device.numa)
        return surroundings, row.index(device.bus_id)

    def _above(self, device: Gpu | Nic) -> tuple[str, ...]:
        bridges = chain(device.bus_id, self._functions)[1:]
        return tuple(bridge.bus_id for bridge in bridges if bridge.role in _BRIDGES)


def _pairs(
    reference: Sequence[_Device],
    found: Sequence[_Device],
    names: Sequence[Callable[[_Device], str]],
    may_be: Callable[[_Device, _Device], bool],
    positions: tuple[_Positions, _Positions],
) -> Pairs[_Device]:
    pairs: Pairs[_Device] = Pairs(missing=list(reference), extra=list(found))
    for name in names:
        for key in [name(device) for device in pairs.missing]:
            here = [device for device in pairs.missing if key and name(device) == key]
            there = [device for device in pairs.extra if key and name(device) == key]
            if len(here) == len(there) == 1 and may_be(here[0], there[0]):
                _settle(pairs, here[0], there[0])
    for a, b in _by_position(pairs, may_be, positions):
        if a in pairs.missing and b in pairs.extra:
            _settle(pairs, a, b)
    return pairs


def _by_position(
    pairs: Pairs[_Device],
    may_be: Callable[[_Device, _Device], bool],
    positions: tuple[_Positions, _Positions],
) -> list[tuple[_Device, _Device]]:
    """Return every remaining pair that may be one device, the most similar first."""
    here, there = _placed(pairs.missing, positions[0]), _placed(pairs.extra, positions[1])
    ranked = sorted(
        (
            _apart(a.numa, b.numa),
            _apart(_port(a), _port(b)),
            near_a != near_b,
            abs(number_a - number_b),
            row,
            column,
        )
        for row, (a, near_a, number_a) in enumerate(here)
        for column, (b, near_b, number_b) in enumerate(there)
        if may_be(a, b)
    )
    return [(here[row][0], there[column][0]) for *_, row, column in ranked]


def _placed(devices: Sequence[_Device], positions: _Positions) -> list[_Placed[_Device]]:
    found = []
    for device in devices:
        surroundings, number = positions.of(device)
        found.append((device, surroundings, number))
    return found


def _settle(pairs: Pairs[_Device], a: _Device, b: _Device) -> None:
    pairs.both.append((a, b))
    pairs.missing.remove(a)
    pairs.extra.remove(b)


def _apart(a: object, b: object) -> bool:
    """Return whether two facts contradict each other; an unknown fact contradicts nothing."""
    return a not in (None, "") and b not in (None, "") and a != b


def _same_model(a: Gpu, at: Host, b: Gpu, there: Host) -> bool:
    return not any(_apart(one, other) for one, other in zip(model(a, at), model(b, there), strict=True))


def _same_card(a: Nic, at: Host, b: Nic, there: Host) -> bool:
    facts = ((a.link_layer, b.link_layer), (model(a, at)[0], model(b, there)[0]))
    return not any(_apart(one, other) for one, other in facts)


def _port(device: Gpu | Nic) -> int | None:
    return device.port if isinstance(device, Nic) else None


def _name(nic: Nic) -> str:
    return "" if nic.name == nic.bus_id else nic.rdma_device or nic.name


def _place(nic: Nic) -> str:
    return f"{nic.bus_id}/{nic.port}" if nic.bus_id and nic.port else ""


def _guid(nic: Nic) -> str:
    return plain_guid(nic.guid)
