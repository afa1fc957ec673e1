"""This machine as psutil sees it: cores, memory, the CPUs this process may use, network addresses."""

from __future__ import annotations

from typing import Any

from probes.topology import Host, Nic, Topology, cpu_list

__all__ = ["METHOD", "read"]

METHOD = "psutil"


def read(host: str, psutil: Any) -> Topology:
    """Cores, memory and addresses of one host; each call that fails becomes a note."""
    notes: list[str] = []

    def ask(call: str, *arguments: object, **options: object) -> Any:
        try:
            return getattr(psutil, call)(*arguments, **options)
        except (OSError, RuntimeError, AttributeError, psutil.Error) as error:
            notes.append(f"{host}: psutil: {call}: {error}")
            return None

    process = ask("Process")
    memory = ask("virtual_memory")
    found = Host(
        name=host,
        method=METHOD,
        cores=ask("cpu_count", logical=False) or ask("cpu_count"),
        cpus=cpu_list(process.cpu_affinity()) if hasattr(process, "cpu_affinity") else "",
        memory_bytes=memory.total if memory else None,
        nics=_nics(ask("net_if_addrs") or {}, ask("net_if_stats") or {}),
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
