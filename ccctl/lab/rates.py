"""The rates of a lab as people write them: one grammar for the tables in lab.toml and for ``lab shape``.

``gpu1`` stands for both directions of each NIC of a host, ``gpu1.egress`` and ``gpu1.ingress`` for one
direction. ``gpu1/eth1`` stands for one NIC, ``gpu1 -> gpu2`` for a directed pair of hosts, and ``trunk`` for
the connection between the racks. Hosts may be written as node sets. The rate ``unlimited`` removes a limit.

Hosts and their directions may also have a delay (``gpu1.egress = 2ms``) and a loss (``gpu1 = 1%``), hosts an
MTU (``gpu1.mtu = 576``), and trunks a delay.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any, TypeVar

from ccctl.errors import UsageError
from exec.lab import (
    LEAST_BYTES_PER_S,
    LEAST_MTU_BYTES,
    MOST_BYTES_PER_S,
    MOST_DELAY_S,
    MOST_HOSTS,
    MOST_MTU_BYTES,
    Lab,
    LabHost,
    NicRate,
    PairRate,
)
from exec.launcher import parse
from probes.base import decimal, format_rate, parse_rate, parse_seconds, quoted, whole

__all__ = ["LabRates", "names_of", "reshaped"]

_Value = TypeVar("_Value")
# Hosts and NICs have rates of two directions.
_Ends = TypeVar("_Ends", LabHost, NicRate)
_ARROW = "->"
_WAYS = ("egress", "ingress")
_NO_LIMIT = "unlimited"
_MTU = ".mtu"
# A time as ``parse_seconds`` reads it; no rate has this form.
_TIME = re.compile(r"[0-9.]+\s*(s|ms|us|µs|μs|ns)?")
# Most rates that may be set in all: four times the number of hosts and pairs of the largest lab.
_MOST_CHANGES = 250_000


def reshaped(lab: Lab, changes: list[str]) -> Lab:
    """Return ``lab`` after changes such as ``gpu1 -> gpu2 = 10Mbit/s``, ``gpu1.egress = 2ms``, ``gpu1 = 1%``.

    Raises UsageError that names the change.
    """
    rates = LabRates(lab)
    for change in changes:
        target, equals, rate = change.rpartition("=")
        if not equals:
            raise UsageError(
                f"expected TARGET=VALUE, found {quoted(change)}",
                hint="For example 'gpu1 -> gpu2 = 10Mbit/s', 'gpu1.egress = 2ms' or 'gpu1 = 1%'.",
            )
        try:
            rates.change(target.strip(), rate.strip())
        except UsageError as error:
            raise UsageError(f"{quoted(target.strip())}: {error.message}", hint=error.hint) from error
    return rates.lab()


class LabRates:
    """The rates of a lab while they are changed, one target after the other."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._hosts = {host.name: host for host in lab.hosts}
        self._pairs = {(pair.src, pair.dst): pair.bytes_per_s for pair in lab.pairs}
        self._trunk = lab.trunk_bytes_per_s
        self._trunk_delay_s = lab.trunk_delay_s
        self._nics = {(rate.host, rate.nic): rate for rate in lab.nic_rates}
        self._changes = 0

    def change(self, target: str, value: str) -> None:
        """Change the rate, delay, loss or MTU of a target; the forms of target and value tell which."""
        if target.endswith(_MTU):
            self.set_mtu(target.removesuffix(_MTU), value)
        elif value.endswith("%"):
            self.set_loss(target, value)
        elif _TIME.fullmatch(value):
            self.set_delay(target, value)
        else:
            self.set(target, value)

    def set_delay(self, target: str, delay: str) -> None:
        """Change the delay of hosts or of the trunks; raises UsageError for a wrong delay or target."""
        delay_s = parse_seconds(delay, "delay")
        if delay_s > MOST_DELAY_S:
            raise UsageError(f"delay: expected up to {MOST_DELAY_S:g}s, found {quoted(delay)}")
        if target == "trunk":
            self._trunk_delay_s = self._of_trunk(delay_s)
            return
        self._set_ends(target, "delay_s", delay_s)

    def set_loss(self, target: str, loss: str) -> None:
        """Change the share of lost packets of hosts; raises UsageError for a wrong share or target."""
        percent = decimal(loss.removesuffix("%").strip(), 0, 100) if loss.endswith("%") else None
        if percent is None:
            raise UsageError(f"loss: expected 0% to 100%, found {quoted(loss)}")
        self._set_ends(target, "loss", percent / 100)

    def set_mtu(self, hosts: str, mtu: str) -> None:
        """Change the largest packet of hosts; raises UsageError for a wrong size or target."""
        size_bytes = whole(mtu, LEAST_MTU_BYTES, MOST_MTU_BYTES)
        if size_bytes is None:
            ends = f"{LEAST_MTU_BYTES} to {MOST_MTU_BYTES}"
            raise UsageError(
                f"MTU: expected {ends} bytes, which the lab's switches carry, found {quoted(mtu)}"
            )
        for name in self._counted(hosts):
            self._hosts[name] = dataclasses.replace(self._hosts[name], mtu_bytes=size_bytes)

    def set(self, target: str, rate: str) -> None:
        """Change the rate of a target; raises UsageError for a wrong rate, and for what is not in the lab."""
        bytes_per_s = _bytes_per_s(rate)
        if target == "trunk":
            self._trunk = self._of_trunk(bytes_per_s)
        elif _ARROW in target:
            self._set_pairs(target, bytes_per_s)
        else:
            named, ways = _with_ways(target)
            hosts, slash, device = named.rpartition("/")
            if slash:
                self._set_nics(names_of(self._lab, hosts), device.strip(), ways, bytes_per_s)
            else:
                self._set_hosts(names_of(self._lab, named), ways, bytes_per_s)

    def set_all(self, rate: str) -> None:
        """Change what every host sends and receives; raises UsageError for a wrong rate."""
        self._set_hosts(list(self._hosts), _WAYS, _bytes_per_s(rate))

    def lab(self) -> Lab:
        """Return the lab with these rates."""
        # The order of pairs and NICs does not depend on the order of the changes, so only rates that differ
        # are changed in the kernel.
        numbers = {name: number for number, name in enumerate(self._hosts)}
        pairs = sorted(self._pairs.items(), key=lambda pair: (numbers[pair[0][0]], numbers[pair[0][1]]))
        return dataclasses.replace(
            self._lab,
            hosts=tuple(self._hosts.values()),
            pairs=tuple(PairRate(src, dst, bytes_per_s) for (src, dst), bytes_per_s in pairs),
            trunk_bytes_per_s=self._trunk,
            trunk_delay_s=self._trunk_delay_s,
            nic_rates=tuple(
                self._nics[key] for key in sorted(self._nics, key=lambda key: (numbers[key[0]], key[1]))
            ),
        )

    def _set_ends(self, target: str, quantity: str, value: float) -> None:
        named, ways = _with_ways(target)
        for name in self._counted(named):
            self._hosts[name] = _changed(self._hosts[name], ways, quantity, value)

    def _counted(self, hosts: str) -> list[str]:
        if hosts == "trunk" or _ARROW in hosts or "/" in hosts:
            raise UsageError(f"expected hosts such as gpu1 or gpu1.egress, found {quoted(hosts)}")
        names = names_of(self._lab, hosts)
        self._count(len(names))
        return names

    def _set_hosts(self, names: list[str], ways: tuple[str, ...], bytes_per_s: float | None) -> None:
        self._count(len(names))
        for name in names:
            for key in [key for key in self._nics if key[0] == name]:
                self._nics[key] = _changed(self._nics[key], ways, "bytes_per_s", bytes_per_s)
            self._hosts[name] = _changed(self._hosts[name], ways, "bytes_per_s", bytes_per_s)

    def _set_nics(
        self, names: list[str], device: str, ways: tuple[str, ...], bytes_per_s: float | None
    ) -> None:
        self._count(len(names))
        devices = self._lab.devices()
        if device not in devices:
            raise UsageError(f"expected one of {', '.join(devices)}, found {quoted(device)}")
        nic = devices.index(device)
        for name in names:
            host = self._hosts[name]
            usual = NicRate(name, nic, host.egress_bytes_per_s, host.ingress_bytes_per_s)
            rate = self._nics.get((name, nic), usual)
            self._nics[name, nic] = _changed(rate, ways, "bytes_per_s", bytes_per_s)

    def _of_trunk(self, value: _Value) -> _Value:
        if not self._lab.racks:
            raise UsageError(f"lab {self._lab.name} has no racks for a trunk to join")
        return value

    def _set_pairs(self, target: str, bytes_per_s: float | None) -> None:
        left, _, right = target.partition(_ARROW)
        sources, receivers = names_of(self._lab, left), names_of(self._lab, right)
        self._count(len(sources) * len(receivers))
        if self._lab.nics > 1:
            raise UsageError(f"rates of pairs are for hosts with one NIC, these have {self._lab.nics}")
        ends = [(src, dst) for src in sources for dst in receivers if src != dst]
        if not ends:
            raise UsageError(f"expected two different hosts, found {quoted(target)}")
        for pair in ends:
            if bytes_per_s is None:
                self._pairs.pop(pair, None)
            else:
                self._pairs[pair] = bytes_per_s

    def _count(self, changes: int) -> None:
        self._changes += changes
        if self._changes > _MOST_CHANGES:
            raise UsageError(f"expected at most {_MOST_CHANGES} rates of hosts and pairs in all, found more")


def _with_ways(target: str) -> tuple[str, tuple[str, ...]]:
    """Return (hosts, directions) of ``gpu1`` or ``gpu1.egress``."""
    name, dot, way = target.rpartition(".")
    return (name, (way,)) if dot and way in _WAYS else (target, _WAYS)


def _changed(one: _Ends, ways: tuple[str, ...], quantity: str, value: float | None) -> _Ends:
    changes: dict[str, Any] = {f"{way}_{quantity}": value for way in ways}
    return dataclasses.replace(one, **changes)


def names_of(lab: Lab, pattern: str) -> list[str]:
    """Return the hosts of ``lab`` that a node set names; raises UsageError for an unknown host."""
    known = {host.name for host in lab.hosts}
    names = [entry.host for entry in parse(pattern.strip(), MOST_HOSTS) if entry.slots == 1]
    missing = [name for name in names if name not in known]
    if missing or not names:
        raise UsageError(f"expected a host of lab {lab.name}, found {quoted(pattern.strip())}")
    return names


def _bytes_per_s(text: str) -> float | None:
    """Return bytes per second, None for no limit; raises UsageError."""
    if text.strip() == _NO_LIMIT:
        return None
    found = parse_rate(text, "rate")
    if not LEAST_BYTES_PER_S <= found <= MOST_BYTES_PER_S:
        ends = f"{format_rate(LEAST_BYTES_PER_S)} to {format_rate(MOST_BYTES_PER_S)}"
        raise UsageError(
            f"rate: expected {ends}, which the kernel can keep, or unlimited, found {quoted(text)}"
        )
    return found
