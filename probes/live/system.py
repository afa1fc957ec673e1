"""This machine as psutil reports it: cores, memory, the CPUs this process may use, network addresses."""

from __future__ import annotations

from typing import Any

from probes.base import cpu_list
from probes.topology import Host, Nic, Topology

__all__ = ["METHOD", "read"]

METHOD = "psutil"


def read(host: str, psutil: Any) -> Topology:
    """Read cores, memory and addresses of one host; each call that fails becomes a note."""
    notes: list[str] = []

    def ask(target: Any, call: str, **options: object) -> Any:
        try:
            return getattr(target, call)(**options)
        except (OSError, RuntimeError, AttributeError, psutil.Error) as error:
            notes.append(f"{host}: psutil: {call}: {error}")
            return None

    process = ask(psutil, "Process")
    memory = ask(psutil, "virtual_memory")
    found = Host(
        name=host,
        method=METHOD,
        cores=ask(psutil, "cpu_count", logical=False) or ask(psutil, "cpu_count"),
        cpus=cpu_list(ask(process, "cpu_affinity") or ()) if process else "",
        memory_bytes=memory.total if memory else None,
        nics=_nics(ask(psutil, "net_if_addrs") or {}, ask(psutil, "net_if_stats") or {}),
    )
    return Topology((found,), notes=tuple(notes))


def _nics(addresses: dict[str, Any], statistics: dict[str, Any]) -> tuple[Nic, ...]:
    return tuple(
        Nic(
            name=name,
            method=METHOD,
            state=("up" if statistics[name].isup else "down") if name in statistics else "",
            mtu=statistics[name].mtu if name in statistics else None,
            speed_mbit=(statistics[name].speed or None) if name in statistics else None,
            addresses=tuple(
                entry.address for entry in entries if entry.family.name in ("AF_INET", "AF_INET6")
            ),
        )
        for name, entries in sorted(addresses.items())
        if name != "lo"
    )
