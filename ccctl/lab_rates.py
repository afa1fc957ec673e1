"""The rates of a lab as people write them: one grammar for the table in lab.toml and for ``lab shape``.

``gpu1`` is what a host sends and what it receives, ``gpu1.egress`` and ``gpu1.ingress`` are one of
them, ``gpu1 -> gpu2`` is a directed pair, ``trunk`` is what lies between the racks. Hosts are node
sets; the rate ``unlimited`` takes a limit away.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ccctl.errors import UsageError
from ccctl.hosts import parse
from ccctl.sizes import parse_rate
from exec.lab_network import Lab, PairRate

__all__ = ["names_of", "rate_of", "rated", "reshaped"]

_ARROW = "->"
_WAYS = ("egress", "ingress")
_NO_LIMIT = "unlimited"


def reshaped(lab: Lab, changes: list[str]) -> Lab:
    """``lab`` after changes such as ``gpu1 -> gpu2 = 10Mbit/s``; raises UsageError that names the change."""
    for change in changes:
        target, equals, rate = change.rpartition("=")
        if not equals:
            raise UsageError(
                f"expected TARGET=RATE, found {change!r}", hint="For example 'gpu1 -> gpu2 = 10Mbit/s'."
            )
        try:
            lab = rated(lab, target.strip(), rate_of(rate))
        except UsageError as error:
            raise UsageError(f"{target.strip()}: {error.message}", hint=error.hint) from error
    return lab


def rate_of(text: str) -> float | None:
    """Bytes per second, None for no limit; raises UsageError."""
    return None if text.strip() == _NO_LIMIT else parse_rate(text, "rate")


def rated(lab: Lab, target: str, bytes_per_s: float | None) -> Lab:
    """``lab`` with one rate changed; raises UsageError where ``target`` is not in it."""
    if target == "trunk":
        return _with_trunk(lab, bytes_per_s)
    if _ARROW in target:
        return _with_pairs(lab, target, bytes_per_s)
    name, dot, way = target.rpartition(".")
    chosen = (way,) if dot and way in _WAYS else _WAYS
    names = names_of(lab, name if chosen == (way,) else target)
    fields: dict[str, Any] = {f"{one}_bytes_per_s": bytes_per_s for one in chosen}
    hosts = (dataclasses.replace(host, **fields) if host.name in names else host for host in lab.hosts)
    return dataclasses.replace(lab, hosts=tuple(hosts))


def names_of(lab: Lab, pattern: str) -> list[str]:
    """The hosts of ``lab`` that a node set names; raises UsageError for one that is not there."""
    known = {host.name for host in lab.hosts}
    try:
        names = [entry.host for entry in parse(pattern.strip()) if entry.slots == 1]
    except UsageError as error:
        raise UsageError(error.message.removeprefix("--hosts: "), hint=error.hint) from error
    missing = [name for name in names if name not in known]
    if missing or not names:
        raise UsageError(f"expected a host of lab {lab.name}, found {pattern.strip()!r}")
    return names


def _with_trunk(lab: Lab, bytes_per_s: float | None) -> Lab:
    if not lab.racks:
        raise UsageError(f"lab {lab.name} has no racks for a trunk to join")
    return dataclasses.replace(lab, trunk_bytes_per_s=bytes_per_s)


def _with_pairs(lab: Lab, target: str, bytes_per_s: float | None) -> Lab:
    left, _, right = target.partition(_ARROW)
    ends = [(src, dst) for src in names_of(lab, left) for dst in names_of(lab, right) if src != dst]
    if not ends:
        raise UsageError(f"expected two different hosts, found {target!r}")
    kept = [pair for pair in lab.pairs if (pair.src, pair.dst) not in ends]
    new = [PairRate(src, dst, bytes_per_s) for src, dst in ends] if bytes_per_s is not None else []
    # In one order, whatever the changes were made in: then only what differs is changed in the kernel.
    pairs = sorted(kept + new, key=lambda pair: (lab.number(pair.src), lab.number(pair.dst)))
    return dataclasses.replace(lab, pairs=tuple(pairs))
