"""The description of a lab as people write it, in TOML: read whole, or refused with every problem."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ccctl.errors import DataError, UsageError
from ccctl.hosts import HostSlots, parse
from ccctl.inputs import parse_document
from ccctl.lab_rates import names_of, rate_of, rated
from exec.lab_network import MOST_HOSTS, Lab, LabHost, refuse_name
from probes.reading import read_text

__all__ = ["read_lab"]

_KEYS = ("name", "hosts", "slots", "racks", "rate", "trunk", "rates")


def read_lab(path: str) -> Lab:
    """The lab that a file describes; raises DataError with every problem, each with its path."""
    document = parse_document(read_text(path), path, "TOML")
    problems = [f"{key}: unknown; expected one of {', '.join(_KEYS)}" for key in document if key not in _KEYS]
    hosts = _hosts(document, problems)
    bare = Lab(_name(document, path, problems), hosts)
    lab = Lab(bare.name, hosts, racks=_racks(document, bare, problems))
    for where, target, rate in _rates(document, problems):
        lab = _with_rate(lab, where, target, rate, problems)
    if problems:
        raise DataError(path, problems, hint="ccctl lab up --help says what a description holds.")
    return lab


def _name(document: dict[str, Any], path: str, problems: list[str]) -> str:
    name = document.get("name", Path(path).stem)
    try:
        refuse_name(name if isinstance(name, str) else str(type(name)))
    except UsageError as error:
        problems.append(f"name: {error.message}")
        return "unnamed"
    return str(name)


def _hosts(document: dict[str, Any], problems: list[str]) -> tuple[LabHost, ...]:
    slots = document.get("slots", 1)
    if type(slots) is not int or slots < 1:
        problems.append(f"slots: expected a whole number ≥ 1, found {slots!r}")
        slots = 1
    found: list[HostSlots] = []
    for where, text in _texts("hosts", _as_names(document.get("hosts")), problems):
        try:
            found += parse(text if ":" in text else f"{text}:{slots}")
        except UsageError as error:
            problems.append(f"{where}: {error.message.removeprefix('--hosts: ')}")
    if len(found) > MOST_HOSTS:
        problems.append(f"hosts: expected at most {MOST_HOSTS}, found {len(found)}")
    names = [entry.host for entry in found]
    problems += [f"hosts: {name} is there twice" for name in sorted({n for n in names if names.count(n) > 1})]
    return tuple(LabHost(entry.host, entry.slots) for entry in found[:MOST_HOSTS])


def _as_names(value: object) -> object:
    return f"host[1-{value}]" if type(value) is int and value > 0 else value


def _texts(key: str, value: object, problems: list[str]) -> Iterator[tuple[str, str]]:
    """(path, text) of a text or of each text in a list."""
    entries = (
        [(f"{key}[{n}]", one) for n, one in enumerate(value)] if isinstance(value, list) else [(key, value)]
    )
    for where, entry in entries:
        if isinstance(entry, str) and entry:
            yield where, entry
        else:
            problems.append(f"{where}: expected hosts such as gpu[1-4], found {entry!r}")
    if not entries:
        problems.append(f"{key}: expected at least one host, found none")


def _racks(document: dict[str, Any], lab: Lab, problems: list[str]) -> tuple[tuple[str, ...], ...]:
    value = document.get("racks", [])
    if not isinstance(value, list):
        problems.append(f"racks: expected a list with the hosts of each rack, found {value!r}")
        return ()
    racks: list[tuple[str, ...]] = []
    for number, rack in enumerate(value):
        members: list[str] = []
        for where, text in _texts(f"racks[{number}]", rack, problems):
            try:
                members += names_of(lab, text)
            except UsageError as error:
                problems.append(f"{where}: {error.message}")
        racks.append(tuple(members))
    placed = [name for rack in racks for name in rack]
    for host in lab.hosts if racks else ():
        if placed.count(host.name) != 1:
            problems.append(f"racks: expected {host.name} in one rack, found it in {placed.count(host.name)}")
    return tuple(racks)


def _rates(document: dict[str, Any], problems: list[str]) -> Iterator[tuple[str, str, object]]:
    """(path, target, rate) of every rate, the general before the particular."""
    if "rate" in document:
        yield "rate", "", document["rate"]
    if "trunk" in document:
        yield "trunk", "trunk", document["trunk"]
    rates = document.get("rates", {})
    if not isinstance(rates, dict):
        problems.append(f"rates: expected a table of rates, found {rates!r}")
        return
    for target, rate in rates.items():
        # TOML reads an unquoted gpu1.egress as a table gpu1 that holds egress.
        inner = rate.items() if isinstance(rate, dict) else [("", rate)]
        for way, one in inner:
            dotted = f"{target}.{way}" if way else target
            yield f'rates."{dotted}"', dotted, one


def _with_rate(lab: Lab, where: str, target: str, rate: object, problems: list[str]) -> Lab:
    if not isinstance(rate, str):
        problems.append(f'{where}: expected a rate such as "100Mbit/s", found {rate!r}')
        return lab
    try:
        bytes_per_s = rate_of(rate)
        # Where no host could be read, that each target is unknown would only repeat it.
        for one in [target] if target and lab.hosts else [host.name for host in lab.hosts]:
            lab = rated(lab, one, bytes_per_s)
    except UsageError as error:
        problems.append(f"{where}: {error.message}")
    return lab
