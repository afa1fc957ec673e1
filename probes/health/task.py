"""Health of every host of a cluster: one rank of each machine reads it, rank 0 collects all."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from probes.base import CcctlError, Safekeeping, UnavailableError, UsageError
from probes.health.environment import default_interface
from probes.health.gpu_load import pcie_load
from probes.health.gpus import read_gpus
from probes.health.host import read_host, read_ports
from probes.health.model import ClusterHealth, HostHealth
from probes.health.nics import regrown
from probes.live import host_key, read_each_machine

__all__ = ["HealthRequest", "HostReading", "cluster_health", "health_task"]

# The wait between two readings reports progress in steps of this length, well before a silent rank counts as
# lost. No wait may be longer than a day.
_STEP_S = 0.5
_MOST_SECONDS = 86_400.0


@dataclass(frozen=True)
class HealthRequest:
    """A request for the health of each host: its counters are read twice, ``seconds`` apart.

    In the default of 5 s, a port of 10 Gbit/s can carry four million frames of 1500 bytes. With 0, the
    counters are read once.
    """

    seconds: float = 5.0


@dataclass(frozen=True)
class HostReading:
    """The health of one machine, or the reason why it could not be read.

    ``machine`` distinguishes machines of equal name.
    """

    host: str
    machine: str
    health: HostHealth | None
    failure: str = ""


def health_task(comm: Any, request: HealthRequest, progress: Safekeeping) -> list[HostReading] | None:
    """Read the health of each machine on its first rank; return all readings on rank 0, else None.

    Each rank also hands over its reading as soon as it is ready, so that the loss of one host does not lose
    the readings of others.
    """
    if not 0 <= request.seconds <= _MOST_SECONDS:
        raise UsageError(f"seconds: expected from 0 to {_MOST_SECONDS:g}, found {request.seconds:g}")
    me = (socket.gethostname(), str(host_key()))
    return read_each_machine(comm, me, lambda: _read(*me, request, progress), progress, "every host's health")


def cluster_health(readings: Sequence[HostReading], missing: Mapping[str, str]) -> ClusterHealth:
    """Return the health of all hosts; ``missing`` maps hosts without a reading to the reason.

    A machine that was read twice counts once. Another machine of the same name gets a number after its name.
    """
    machines = {(reading.host, reading.machine): reading for reading in readings}
    hosts: dict[str, HostHealth] = {}
    failed: dict[str, str] = {}
    for reading in machines.values():
        if reading.health is None:
            failed[reading.host] = reading.failure
            continue
        name, number = reading.host, 2
        while name in hosts:
            name, number = f"{reading.host}-{number}", number + 1
        hosts[name] = replace(reading.health, host=name)
    return ClusterHealth(tuple(hosts.values()), {**failed, **missing})


def _read(host: str, machine: str, request: HealthRequest, progress: Safekeeping) -> HostReading:
    progress.update(0, 1, "reading this host's health")
    try:
        start_s = time.monotonic()
        health = _with_gpus(read_host(host))
        if request.seconds:
            _wait(start_s + request.seconds, start_s, progress)
            later = read_ports(host)
            nics = regrown(health.nics, later, time.monotonic() - start_s)
            health = replace(health, nics=nics)
        return HostReading(host, machine, health)
    except CcctlError as error:
        return HostReading(host, machine, None, error.message)
    except Exception as error:  # one host's broken library must not lose the facts of all others
        return HostReading(host, machine, None, f"{type(error).__name__}: {error}")


def _wait(end_s: float, start_s: float, progress: Safekeeping) -> None:
    while (left_s := end_s - time.monotonic()) > 0:
        done = (time.monotonic() - start_s) / (end_s - start_s)
        progress.update(done, 1, "waiting for counters that grow")
        time.sleep(min(left_s, _STEP_S))


def _with_gpus(health: HostHealth) -> HostHealth:
    """Return the health with the host's GPUs and the interface of its default route."""
    import pynvml

    unread = dict(health.unread)
    try:
        load = pcie_load(pynvml)
    except UnavailableError as error:
        load = None
        unread["PCIe under load"] = f"{error.message}; {error.hint}".rstrip("; ")
    gpus, missing = read_gpus(pynvml, load)
    if not gpus:
        unread.pop("PCIe under load", None)
    return replace(health, gpus=gpus, interface=default_interface(), unread=unread | missing)
