"""Plans of the fabric, in TOML, as Slurm's topology.conf, or as an InfraGraph in JSON.

The plan says how the cluster should be wired. In TOML it may hold three keys, each of which may be missing::

    # The hosts of each rack (leaf switch), as sets of hosts; a list names the racks rack1, rack2, …
    racks = ["gpu[001-008]", ["gpu009", "gpu[010-016]"]]
    # The rate of each rack's uplinks together, each way.
    trunk = "1600Gbit/s"
    # The rail of each NIC, here the same in all hosts of all racks: a list numbers them from 0.
    rails = ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"]

As tables, ``racks`` names the racks and ``rails`` gives the number of each rail. A key with hosts before the
NIC applies to these hosts only, and takes precedence::

    trunk = "1600Gbit/s"
    [racks]
    leaf-a = "gpu[001-008]"
    leaf-b = "gpu[009-016]"
    [rails]
    mlx5_0 = 0
    mlx5_1 = 1
    "gpu[015-016] ens1" = 1

A topology.conf gives the racks: its switches with nodes, or its blocks (`topology_conf`). An InfraGraph gives
the racks and the trunk (`infragraph`). Slurm's topology.yaml is not read, because no dependency reads YAML.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from typing import Any

from exec.acceptance import infragraph, topology_conf
from exec.launcher import MOST_RANKS, parse
from probes.base import DataError, UsageError, parse_rate, quoted
from probes.files import decoded, parse_document
from probes.localization import FabricPlan

__all__ = ["hosts_of_set", "read_plan"]

# The largest file: room to name each of 65,536 hosts (``MOST_RANKS``) twice, in a rack and with a rail, by
# 128 bytes each time. At most ``_MOST_PAIRS`` pairs of a host and a NIC have a rail: 16 NICs on each of these
# hosts. A rail's number is below ``_MOST_RAILS``, as no host has a thousand NICs.
_MOST_BYTES = 16 << 20
_MOST_RAILS = 1 << 10
_MOST_PAIRS = 16 * MOST_RANKS
# The longest key that messages show without quotation marks, so that they fit on a line.
_LONGEST_KEY = 60
_KEYS = ("racks", "trunk", "rails")
_YAML = re.compile(r"---|- |[A-Za-z_][A-Za-z0-9_-]*:(\s|$)")
_HINT = (
    "A plan holds racks, trunk and rails in TOML; or it is Slurm's topology.conf, or an InfraGraph in JSON."
)


def read_plan(content: bytes, source: str) -> FabricPlan:
    """Return the plan that a file holds; its format is detected from the content.

    Raises DataError with every problem, each with its path or line.
    """
    if len(content) > _MOST_BYTES:
        raise DataError(source, [f"expected at most {_MOST_BYTES >> 20} MiB, found {len(content)} bytes"])
    text = decoded(content, source)
    problems: list[str] = []
    if text.lstrip().startswith("{"):
        plan = infragraph.fabric_plan(parse_document(text, source, "JSON"), problems)
    elif topology_conf.is_topology(text):
        plan = FabricPlan(racks=_racks_once(topology_conf.leaves(text, problems), problems))
    elif _is_yaml(text):
        raise DataError(source, ["expected TOML, topology.conf or JSON, found YAML"], hint=_HINT)
    else:
        plan = _from_toml(parse_document(text, source, "TOML"), problems)
    if not problems and not (plan.racks or plan.rails):
        problems.append("expected racks or rails, found neither")
    if problems:
        raise DataError(source, problems, hint=_HINT)
    return plan


def hosts_of_set(text: str) -> tuple[str, ...]:
    """Return the hosts of a set such as ``gpu[1-8],login1``; raises UsageError for slots and repetitions."""
    entries = parse(text.strip())
    for entry in entries:
        if entry.slots != 1:
            raise UsageError(f"expected each host once and without slots, found {quoted(text)}")
    return tuple(entry.host for entry in entries)


def _is_yaml(text: str) -> bool:
    lines = (line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    return bool(_YAML.match(next(lines, "")))


def _from_toml(document: dict[str, Any], problems: list[str]) -> FabricPlan:
    problems += [
        f"{_shown_key(key)}: unknown; expected one of {', '.join(_KEYS)}"
        for key in document
        if key not in _KEYS
    ]
    racks = _racks_once(_racks(document.get("racks", []), problems), problems)
    return FabricPlan(
        racks=racks,
        rails=_rails(document.get("rails", []), racks, problems),
        trunk_bytes_per_s=_trunk(document.get("trunk"), problems),
    )


def _racks(value: object, problems: list[str]) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield (path, name, hosts) of each rack."""
    if isinstance(value, list):
        named = [(f"racks[{at}]", f"rack{at + 1}", each) for at, each in enumerate(value)]
    elif isinstance(value, dict):
        named = [(f"racks.{_shown_key(name)}", name, each) for name, each in value.items()]
    else:
        problems.append(f"racks: expected a list or a table with the hosts of each, found {_shown(value)}")
        return
    for path, name, each in named:
        found: list[str] = []
        for where, text in _texts(path, each, problems):
            try:
                found += hosts_of_set(text)
            except UsageError as error:
                problems.append(f"{where}: {error.message}")
        yield path, name, tuple(found)


def _texts(path: str, value: object, problems: list[str]) -> Iterator[tuple[str, str]]:
    """Yield (path, text) of a text, or of each text of a list."""
    several = isinstance(value, list)
    for at, each in enumerate(value if isinstance(value, list) else [value]):
        where = f"{path}[{at}]" if several else path
        if isinstance(each, str) and each:
            yield where, each
        else:
            problems.append(f"{where}: expected hosts such as gpu[1-8], found {_shown(each)}")
    if several and not value:
        problems.append(f"{path}: expected hosts such as gpu[1-8], found none")


def _racks_once(
    racks: Iterator[tuple[str, str, tuple[str, ...]]], problems: list[str]
) -> dict[str, tuple[str, ...]]:
    """Return {name: hosts}; add a problem for each host that is there twice, and for too many hosts."""
    found: dict[str, tuple[str, ...]] = {}
    rack_of: dict[str, str] = {}
    for path, name, hosts in racks:
        for host in hosts:
            if host in rack_of:
                problems.append(f"{path}: {host} is in {quoted(rack_of[host])} already")
            rack_of.setdefault(host, name)
        if len(rack_of) > MOST_RANKS:
            problems.append(f"{path}: expected at most {MOST_RANKS} hosts up to here, found {len(rack_of)}")
            break
        found[name] = hosts
    return found


def _trunk(value: object, problems: list[str]) -> float | None:
    if value is None:
        return None
    if not isinstance(value, str):
        problems.append(f'trunk: expected a rate such as "400Gbit/s", found {_shown(value)}')
        return None
    try:
        return parse_rate(value, "rate")
    except UsageError as error:
        problems.append(f"trunk: {error.message}")
        return None


def _rails(
    value: object, racks: dict[str, tuple[str, ...]], problems: list[str]
) -> dict[tuple[str, str], int]:
    """Return {(host, NIC): rail}; entries with hosts take precedence over those for all."""
    if isinstance(value, list):
        entries: list[tuple[str, object, object]] = [
            (f"rails[{at}]", nic, at) for at, nic in enumerate(value)
        ]
    elif isinstance(value, dict):
        entries = [(f"rails.{_shown_key(nic)}", nic, rail) for nic, rail in value.items()]
    else:
        problems.append(f"rails: expected a list of NICs or a table of NICs and rails, found {_shown(value)}")
        return {}
    every = [host for hosts in racks.values() for host in hosts]
    found: dict[tuple[str, str], int] = {}
    own: dict[tuple[str, str], int] = {}
    for path, name, rail in entries:
        if type(rail) is not int or not 0 <= rail < _MOST_RAILS:
            problems.append(f"{path}: expected a rail from 0 to {_MOST_RAILS - 1}, found {_shown(rail)}")
            continue
        hosts, nic = _nic(path, name, every, problems)
        if len(found) + len(own) + len(hosts) > _MOST_PAIRS:
            problems.append(f"{path}: expected at most {_MOST_PAIRS} NICs in all")
            break
        (found if hosts is every else own).update(dict.fromkeys(product(hosts, [nic]), rail))
    return found | own


def _nic(path: str, name: object, every: list[str], problems: list[str]) -> tuple[list[str], str]:
    """Return (hosts, NIC) of the name of an entry: "mlx5_0" in all racks, or "gpu[1-2] mlx5_0"."""
    words = name.split() if isinstance(name, str) else []
    if len(words) == 1 and every:
        return every, words[0]
    if len(words) == 1:
        problems.append(f"{path}: expected racks, or hosts before the NIC, to say which hosts have it")
    elif len(words) == 2:
        try:
            return list(hosts_of_set(words[0])), words[1]
        except UsageError as error:
            problems.append(f"{path}: {error.message}")
    else:
        problems.append(f"{path}: expected a NIC such as mlx5_0, found {_shown(name)}")
    return [], ""


def _shown_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) and len(key) <= _LONGEST_KEY else quoted(key)


def _shown(value: object) -> str:
    """Return a value as messages show it; for a list, a table or a huge number, only its kind."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, bool | float) or value is None:
        return repr(value)
    if isinstance(value, int):
        return str(value) if abs(value) < 1 << 63 else "a number of many digits"
    return {"list": "a list", "dict": "a table"}.get(type(value).__name__, type(value).__name__)
