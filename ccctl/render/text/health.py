"""The health of hosts as text: a line for each host, the facts in which they differ, and what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ccctl import console
from ccctl.render import Column, print_table
from exec.launcher import fold
from probes.base import plural

if TYPE_CHECKING:
    from probes.health import ClusterHealth, HostHealth

__all__ = ["draw"]

_HOSTS = (
    Column("host", "host"),
    Column("GPUs", lambda one: len(one.gpus)),
    Column("NICs", lambda one: len(one.nics)),
    Column("kernel events", lambda one: sum(event.count for event in one.events)),
    Column("not read", lambda one: len(one.unread)),
)


def draw(health: ClusterHealth) -> None:
    """Print a table of the hosts, then their kernel events, differences, and what could not be read."""
    gone = f", {len(health.missing)} did not" if health.missing else ""
    hosts = tuple(health.every())
    console.data(f"{plural(len(hosts), 'host')} answered{gone}")
    print_table(_HOSTS, hosts)
    for one in hosts:
        for event in one.events:
            code = f" {event.code}" if event.code else ""
            times = f", {event.count} times" if event.count > 1 else ""
            console.data(f"{one.host}: {event.kind}{code} of {event.device}{times}: {event.text}")
    for line in (*_differences(hosts), *_unread(hosts)):
        console.data(line)
    for host, reason in health.missing.items():
        console.data(f"no answer: {host}: {reason}")


def _differences(every: tuple[HostHealth, ...]) -> Iterator[str]:
    """Yield each fact that differs between hosts, with the hosts of each value, rarest first."""
    for name in dict.fromkeys(name for one in every for name in one.alike):
        hosts: dict[str, list[str]] = {}
        for one in every:
            hosts.setdefault(one.alike.get(name, "unknown"), []).append(one.host)
        if len(hosts) > 1:
            rarest_first = sorted(hosts.items(), key=lambda pair: len(pair[1]))
            yield f"differs: {name}: {'; '.join(f'{value} on {fold(own)}' for value, own in rarest_first)}"


def _unread(hosts: tuple[HostHealth, ...]) -> Iterator[str]:
    """Yield each fact that could not be read, with the reason and the hosts concerned."""
    found: dict[tuple[str, str], list[str]] = {}
    for host in hosts:
        for pair in host.unread.items():
            found.setdefault(pair, []).append(host.host)
    for (name, reason), names in found.items():
        yield f"not read: {name} on {fold(names)}: {reason}"
