"""InfraGraph: the graph of an infrastructure as JSON (https://github.com/Keysight/infragraph, version 2).

``devices`` hold ``components`` (a name, a count, a choice such as xpu, nic, port), and ``instances`` are
``count`` copies of a device. ``edges`` join components of instances over ``links`` with a bandwidth. An
endpoint names an instance and a component, each with a slice as Python writes it: ``host[0:4]`` and
``nic[0]``. An edge joins the endpoints in pairs (``one2one``), or all of one side to all of the other
(``many2many``).

A host is an instance whose device has an xpu or a nic; other instances that edges join to it are its leaf
switches. Hosts with the same leaf switches form a rack, so hosts that share the switches of all rails form
one rack. Copies are numbered from 0: the fourth copy of ``host`` is ``host3``. A dot separates the number
from a name that ends in a digit (``h100.3``). A single copy has no number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product, repeat
from typing import Any

from probes.base import quoted
from probes.localization import FabricPlan

__all__ = ["fabric_plan"]

# The most pairs of endpoints that all edges together may join: 8 NICs of each of 65,536 hosts.
# ``_MOST_COUNT`` is the largest ``count`` of copies or components.
_MOST_ENDPOINTS = 1 << 19
_MOST_COUNT = 1 << 20
# The most levels of devices within devices; a GPU on a board in a tray in a rack has fewer.
_MOST_DEPTH = 16
# A device is a host if it, or a device within it, has one of these components. A cpu does not make a host,
# because the ASIC of a switch may be listed as one.
_OF_HOSTS = ("xpu", "nic")
_SCHEMES = ("one2one", "many2many")
_BYTES_PER_S = {"gigabits_per_second": 1.25e8, "gigabytes_per_second": 1e9}
_ENDPOINT = re.compile(r"([A-Za-z0-9_.-]{1,100}?)(?:\[([0-9]{0,9})(?:(:)([0-9]{0,9}))?\])?")


@dataclass(frozen=True)
class _Instance:
    name: str
    device: str
    count: int

    def named(self, at: int) -> str:
        separator = "." if self.name[-1:].isdigit() else ""
        return f"{self.name}{separator}{at}" if self.count > 1 else self.name


@dataclass(frozen=True)
class _End:
    """One side of an edge; ``numbers`` holds the number of each copy once per named component."""

    instance: _Instance
    numbers: tuple[int, ...]


class _WrongError(ValueError):
    """A value of the document that is not as expected; the text says what was expected and found."""


def fabric_plan(document: dict[str, Any], problems: list[str]) -> FabricPlan:
    """Return the racks and the trunk of an InfraGraph; add every problem to ``problems``."""
    inner = document.get("infrastructure", document)
    graph = _Graph(inner if isinstance(inner, dict) else {}, problems)
    joined: dict[str, dict[str, None]] = {}
    uplinks: list[tuple[str, str, float]] = []
    budget = _MOST_ENDPOINTS
    for path, edge in _entries(graph.document, "edges", problems):
        try:
            pairs = graph.pairs(edge)
        except _WrongError as error:
            problems.append(f"{path}.{error}")
            continue
        rate = graph.rate(edge.get("link"))
        for (one, number), (other, its_number) in pairs:
            budget -= 1
            if budget < 0:
                problems.append(f"{path}: expected at most {_MOST_ENDPOINTS} pairs of endpoints up to here")
                return FabricPlan()
            ends = [(one, one.named(number)), (other, other.named(its_number))]
            hosts = [graph.is_host(instance) for instance, _ in ends]
            if hosts == [True, False]:
                joined.setdefault(ends[0][1], {})[ends[1][1]] = None
            elif hosts == [False, True]:
                joined.setdefault(ends[1][1], {})[ends[0][1]] = None
            elif not any(hosts):
                uplinks.append((ends[0][1], ends[1][1], rate))
    if not joined and not problems:
        problems.append("edges: expected edges from hosts to switches, found none")
    return _planned(joined, uplinks)


def _planned(joined: dict[str, dict[str, None]], uplinks: list[tuple[str, str, float]]) -> FabricPlan:
    """Return the plan: racks by their leaf switches, and the least uplink rate of a rack."""
    racks: dict[tuple[str, ...], list[str]] = {}
    for host, switches in joined.items():
        racks.setdefault(tuple(sorted(switches)), []).append(host)
    leaf_racks: dict[str, set[tuple[str, ...]]] = {}
    for rack in racks:
        for leaf in rack:
            leaf_racks.setdefault(leaf, set()).add(rack)
    rates = dict.fromkeys(racks, 0.0)
    for one, other, rate in uplinks:
        for leaf, above in ((one, other), (other, one)):
            if above not in leaf_racks:
                for rack in leaf_racks.get(leaf, ()):
                    rates[rack] += rate
    known = rates and all(0 < rate < float("inf") for rate in rates.values())
    return FabricPlan(
        racks={"+".join(leaves): tuple(hosts) for leaves, hosts in racks.items()},
        trunk_bytes_per_s=min(rates.values()) if known and len(racks) > 1 else None,
    )


class _Graph:
    """The instances, devices and links of a document by name."""

    def __init__(self, document: dict[str, Any], problems: list[str]) -> None:
        self.document = document
        self._components: dict[str, dict[str, tuple[int, str]]] = {}
        self._instances: dict[str, _Instance] = {}
        self._rates: dict[str, float] = {}
        for path, device in _entries(document, "devices", problems):
            device_name = _name(device, "name", path, problems)
            own = self._components.setdefault(device_name, {})
            for where, component in _entries(device, "components", problems, path):
                name = _name(component, "name", where, problems)
                choice = component.get("choice", "")
                own[name] = _counted(component, where, problems), choice if isinstance(choice, str) else ""
        for path, instance in _entries(document, "instances", problems):
            name, copied = (_name(instance, key, path, problems) for key in ("name", "device"))
            if copied and copied not in self._components:
                problems.append(f"{path}.device: there is no device {quoted(copied)}")
            self._instances[name] = _Instance(name, copied, _counted(instance, path, problems))
        for path, link in _entries(document, "links", problems):
            self._rates[_name(link, "name", path, problems)] = _bandwidth(link)
        self._hosts: dict[str, bool] = {}

    def is_host(self, instance: _Instance) -> bool:
        if instance.device not in self._hosts:
            self._hosts[instance.device] = self._computes(instance.device, frozenset())
        return self._hosts[instance.device]

    def rate(self, link: object) -> float:
        """Return bytes/s of a link, 0 if unknown."""
        return self._rates.get(link, 0.0) if isinstance(link, str) else 0.0

    def pairs(self, edge: dict[str, Any]) -> Iterator[tuple[tuple[_Instance, int], tuple[_Instance, int]]]:
        """Return the pairs of (instance, number) that an edge joins; raises _WrongError."""
        ends = [self._end(edge.get(key), key) for key in ("ep1", "ep2")]
        scheme = edge.get("scheme", "one2one")
        if scheme not in _SCHEMES:
            raise _WrongError(f"scheme: expected {' or '.join(_SCHEMES)}, found {_shown(scheme)}")
        one, other = (zip(repeat(end.instance), end.numbers) for end in ends)
        return iter(product(one, other)) if scheme == "many2many" else zip(one, other, strict=False)

    def _computes(self, device: str, above: frozenset[str]) -> bool:
        if device in above or len(above) > _MOST_DEPTH:
            return False
        components = self._components.get(device, {})
        return any(
            choice in _OF_HOSTS or (choice == "device" and self._computes(name, above | {device}))
            for name, (_, choice) in components.items()
        )

    def _end(self, endpoint: object, key: str) -> _End:
        if not isinstance(endpoint, dict):
            raise _WrongError(f"{key}: expected an instance and a component, found {_shown(endpoint)}")
        name, part = _endpoint(endpoint.get("instance"), f"{key}.instance")
        if name not in self._instances:
            raise _WrongError(f"{key}.instance: there is no instance {quoted(name)}")
        instance = self._instances[name]
        numbers = _numbers(part, instance.count, f"{key}.instance")
        each = self._component_count(endpoint.get("component"), instance.device, f"{key}.component")
        if len(numbers) * each > _MOST_ENDPOINTS:
            raise _WrongError(f"{key}: expected at most {_MOST_ENDPOINTS} endpoints")
        return _End(instance, tuple(number for number in numbers for _ in range(each)))

    def _component_count(self, text: object, device: str, where: str) -> int:
        """Return how many components of a device a path such as ``cx5[0:2].port[0]`` names."""
        count, at = 1, device
        pieces = text.split(".") if isinstance(text, str) else [text]
        for piece in pieces[: _MOST_DEPTH + 1]:
            name, part = _endpoint(piece, where)
            own = self._components.get(at, {})
            if name not in own:
                raise _WrongError(f"{where}: device {quoted(at)} has no component {quoted(name)}")
            count *= len(_numbers(part, own[name][0], where))
            at = name
        return min(count, _MOST_ENDPOINTS + 1)


def _entries(
    table: dict[str, Any], key: str, problems: list[str], above: str = ""
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (path, table) of each entry of a list; add a problem for any other value."""
    path = f"{above}.{key}" if above else key
    value = table.get(key, [])
    if not isinstance(value, list):
        problems.append(f"{path}: expected a list, found {_shown(value)}")
        return
    for at, entry in enumerate(value):
        if isinstance(entry, dict):
            yield f"{path}[{at}]", entry
        else:
            problems.append(f"{path}[{at}]: expected an object, found {_shown(entry)}")


def _name(table: dict[str, Any], key: str, path: str, problems: list[str]) -> str:
    value = table.get(key)
    if isinstance(value, str) and value:
        return value
    problems.append(f"{path}.{key}: expected a name, found {_shown(value)}")
    return ""


def _counted(table: dict[str, Any], path: str, problems: list[str]) -> int:
    count = table.get("count")
    if type(count) is int and 0 <= count <= _MOST_COUNT:
        return count
    problems.append(f"{path}.count: expected a number from 0 to {_MOST_COUNT}, found {_shown(count)}")
    return 0


def _bandwidth(link: dict[str, Any]) -> float:
    """Return bytes/s, or 0 if the link states no bandwidth in gigabits/s or gigabytes/s."""
    value: object = link
    for key in ("physical", "bandwidth"):
        value = value.get(key) if isinstance(value, dict) else None
    for unit, bytes_per_s in _BYTES_PER_S.items():
        number = value.get(unit) if isinstance(value, dict) else None
        if isinstance(number, int | float) and not isinstance(number, bool) and 0 < number < _MOST_GIGA:
            return number * bytes_per_s
    return 0.0


# The largest bandwidth of a link in Gbit/s or GB/s. Larger values are mistakes in the unit, and their sums
# may overflow.
_MOST_GIGA = 1e9


def _endpoint(text: object, where: str) -> tuple[str, re.Match[str]]:
    match = _ENDPOINT.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise _WrongError(f"{where}: expected a name with numbers such as host[0:4], found {_shown(text)}")
    return match[1], match


def _numbers(part: re.Match[str], count: int, where: str) -> range:
    """Return the numbers of a slice: all, one, or from the first up to the second."""
    _, first, colon, last = part.groups()
    if first is None:
        return range(count)
    if not colon and first:
        found = range(int(first), int(first) + 1)
    else:
        found = range(int(first or 0), int(last) if last else count)
    if found.stop > count:
        raise _WrongError(f"{where}: expected numbers below {count}, found {quoted(part[0])}")
    return found


def _shown(value: object) -> str:
    return quoted(value) if isinstance(value, str) else type(value).__name__
