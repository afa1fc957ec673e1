"""The description of a lab as people write it, in TOML: read whole, or refused with every problem."""

from __future__ import annotations

import json
import re
import reprlib
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from ccctl.errors import DataError, UsageError
from ccctl.lab.rates import LabRates, names_of
from exec.lab import MOST_HOST_LETTERS, MOST_HOSTS, MOST_NICS, Lab, LabHost, refuse_name
from exec.launcher import MOST_RANKS, parse
from probes.base import quoted
from probes.files import parse_document, read_text

__all__ = ["read_lab"]

# Longer names and values are cut so that an error stays on a line.
_SHOWN = 60
_BRIEF = reprlib.Repr()
_BRIEF.maxlevel, _BRIEF.maxstring, _BRIEF.maxother = 2, _SHOWN, _SHOWN
# Largest size of a description: a rate for every pair of hosts of the largest lab, one a line.
_MOST_BYTES = 4 << 20
# Stands for a name that was refused.
_UNNAMED = "unnamed"
_KEYS = ("name", "hosts", "slots", "nics", "racks", "rate", "trunk", "rates", "delays", "losses", "mtu")
# Tables of values by target, and an example of the value.
_TABLES = {"rates": '"100Mbit/s"', "delays": '"2ms"', "losses": '"1%"', "mtu": "576"}


def read_lab(path: str) -> Lab:
    """Return the lab that a file describes; raises DataError with every problem, each with its path."""
    document = parse_document(read_text(path, _MOST_BYTES), path, "TOML")
    problems = [
        f"{_path(key)}: unknown; expected one of {', '.join(_KEYS)}" for key in document if key not in _KEYS
    ]
    hosts = _hosts(document, problems)
    bare = Lab(_name(document, path, problems), hosts)
    nics = _nics(document, problems)
    bare = replace(bare, nics=nics)
    rates = LabRates(replace(bare, racks=_racks(document, bare, problems)))
    setters: dict[str, Callable[[str, str], None]] = {
        "rates": rates.set,
        "delays": rates.set_delay,
        "losses": rates.set_loss,
        "mtu": rates.set_mtu,
    }
    for table, where, target, value in _values(document, problems):
        # If no host could be read, an error for each unknown target would only repeat that.
        if hosts or target is None or table == "rates":
            setter = rates.set_all if target is None or not hosts else partial(setters[table], target)
            _set(setter, where, value, _TABLES[table], problems)
    if problems:
        raise DataError(path, problems, hint="ccctl lab up --help says what a description holds.")
    return rates.lab()


def _name(document: dict[str, Any], path: str, problems: list[str]) -> str:
    name = document.get("name", Path(path).stem)
    if not isinstance(name, str):
        problems.append(f"name: expected a text, found {_shown(name)}")
        return _UNNAMED
    try:
        refuse_name(name)
    except UsageError as error:
        problems.append(f"name: {error.message}")
        return _UNNAMED
    return name


def _hosts(document: dict[str, Any], problems: list[str]) -> tuple[LabHost, ...]:
    slots = document.get("slots", 1)
    if type(slots) is not int or not 1 <= slots <= MOST_RANKS:
        problems.append(f"slots: expected a whole number from 1 to {MOST_RANKS}, found {_shown(slots)}")
        slots = 1
    found: dict[str, int] = {}
    for where, text in _texts("hosts", _as_names(document.get("hosts")), problems):
        try:
            entries = parse(text, slots=slots)
        except UsageError as error:
            problems.append(f"{where}: {error.message}")
            continue
        for entry in entries:
            if entry.host in found:
                problems.append(f"hosts: {entry.host} is there twice")
            elif len(entry.host) > MOST_HOST_LETTERS:
                bound = f"a name of up to {MOST_HOST_LETTERS} letters"
                problems.append(f"{where}: expected {bound}, found {quoted(entry.host)}")
            else:
                found[entry.host] = entry.slots
    if len(found) > MOST_HOSTS:
        problems.append(f"hosts: expected at most {MOST_HOSTS}, found {len(found)}")
    if sum(found.values()) > MOST_RANKS:
        problems.append(f"hosts: expected at most {MOST_RANKS} slots in all, found {sum(found.values())}")
    return tuple(LabHost(name, count) for name, count in islice(found.items(), MOST_HOSTS))


def _nics(document: dict[str, Any], problems: list[str]) -> int:
    nics = document.get("nics", 1)
    if type(nics) is not int or not 1 <= nics <= MOST_NICS:
        problems.append(f"nics: expected a whole number from 1 to {MOST_NICS}, found {_shown(nics)}")
        return 1
    return nics


def _as_names(value: object) -> object:
    return f"host[1-{value}]" if type(value) is int and 0 < value < 10**18 else value


def _texts(key: str, value: object, problems: list[str]) -> Iterator[tuple[str, str]]:
    """Yield (path, text) of a text or of each text in a list."""
    entries = (
        [(f"{key}[{n}]", one) for n, one in enumerate(value)] if isinstance(value, list) else [(key, value)]
    )
    if not 1 <= len(entries) <= MOST_HOSTS:
        problems.append(f"{key}: expected 1 to {MOST_HOSTS} sets of hosts, found {len(entries)}")
        return
    for where, entry in entries:
        if isinstance(entry, str) and entry:
            yield where, entry
        else:
            problems.append(f"{where}: expected hosts such as gpu[1-4], found {_shown(entry)}")


def _racks(document: dict[str, Any], lab: Lab, problems: list[str]) -> tuple[tuple[str, ...], ...]:
    value = document.get("racks", [])
    if not isinstance(value, list) or len(value) > MOST_HOSTS:
        found = f"{len(value)} of them" if isinstance(value, list) else _shown(value)
        problems.append(
            f"racks: expected a list with the hosts of each rack, at most {MOST_HOSTS}, found {found}"
        )
        return ()
    racks: list[tuple[str, ...]] = []
    for number, rack in enumerate(value):
        members: list[str] = []
        for where, text in _texts(f"racks[{number}]", rack, problems):
            try:
                members += _members(lab, text)
            except UsageError as error:
                problems.append(f"{where}: {error.message}")
        racks.append(tuple(members))
    placed = Counter(name for rack in racks for name in rack)
    for host in lab.hosts if racks else ():
        for device in lab.devices():
            times = placed[host.name] + placed[f"{host.name}/{device}"]
            if times != 1:
                name = host.name if lab.nics == 1 else f"{host.name}/{device}"
                problems.append(f"racks: expected {name} in one rack, found it in {times}")
    return tuple(racks)


def _members(lab: Lab, text: str) -> list[str]:
    """Return the hosts of a rack, or their interfaces: gpu[1-2]/eth1."""
    hosts, slash, device = text.rpartition("/")
    if slash and device not in lab.devices():
        raise UsageError(f"expected one of {', '.join(lab.devices())}, found {quoted(device)}")
    return [f"{name}/{device}" for name in names_of(lab, hosts)] if slash else names_of(lab, text)


def _values(document: dict[str, Any], problems: list[str]) -> Iterator[tuple[str, str, str | None, object]]:
    """Yield (table, path, target, value) of every value, general rates first; target None is every host."""
    if "rate" in document:
        yield "rates", "rate", None, document["rate"]
    if "trunk" in document:
        yield "rates", "trunk", "trunk", document["trunk"]
    for table in _TABLES:
        values = document.get(table, {})
        if not isinstance(values, dict):
            problems.append(f"{table}: expected a table of targets, found {_shown(values)}")
            continue
        for target, value in _flat(values):
            yield table, f"{table}.{json.dumps(target[:_SHOWN])}", target, value


def _flat(table: dict[str, Any]) -> Iterator[tuple[str, object]]:
    """Yield (dotted name, value): TOML reads an unquoted gpu1.egress as a table gpu1 that holds egress."""
    for name, value in table.items():
        if not isinstance(value, dict):
            yield name, value
            continue
        for inner, rate in value.items():
            yield f"{name}.{inner}", rate


def _set(setter: Callable[[str], None], where: str, value: object, example: str, problems: list[str]) -> None:
    if type(value) is not (str if example.startswith('"') else int):
        problems.append(f"{where}: expected a value such as {example}, found {_shown(value)}")
        return
    try:
        setter(_shown(value) if type(value) is int else str(value))
    except UsageError as error:
        problems.append(f"{where}: {error.message}")


def _path(key: str) -> str:
    return key if re.fullmatch(rf"[A-Za-z0-9_-]{{1,{_SHOWN}}}", key) else json.dumps(key[:_SHOWN])


def _shown(value: object) -> str:
    """Return a value as messages show it, cut off where it is long or deep."""
    try:
        return quoted(value) if isinstance(value, str) else _BRIEF.repr(value)
    except ValueError:
        return f"a number of more than {sys.get_int_max_str_digits()} digits"
