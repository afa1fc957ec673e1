"""A schedule in SimGrid, an independent simulator: the same sends and costs, SimGrid's clock.

Links carry one send at a time, in table order. At ports, sends either take turns in table order, as in
`synth.simulation.schedule`, or share the ports. A shared port is a link of SimGrid with the speed that
`Network.port_s_per_byte` gives; the sends over it divide its bandwidth max-min fairly. With turns both
simulators have one model and must agree. With sharing their difference is the benefit of the order at ports.
Streams always share their links and ports, and the ports of a network that queues are always shared.

SimGrid's Python bindings come with Debian for the system's interpreter, so they run in a process of their
own (`simgrid_engine`).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from probes.base import DataError, Floats, UnavailableError
from synth.multimem import refuse_switches
from synth.schedules import Schedule
from synth.simulation import simgrid_engine
from synth.simulation.chunk_slots import dependencies

__all__ = ["InSimgrid", "interpreter", "replay_in_simgrid", "takes_turns"]

# The size of every send in SimGrid. A link is at most 1e9 times slower than another. So each link carries at
# least a byte in a unit of time, and SimGrid's precision (1e-5 bytes) is far below a byte.
_SEND_BYTES = 1_000_000_000
# Code that fails unless SimGrid is usable: versions that are too new have no `Comm.wait_any`.
_WANTED = "import simgrid; simgrid.Comm.wait_any"
_HINT = "On Debian 12: apt-get install python3-simgrid."


@dataclass(frozen=True, eq=False)
class InSimgrid:
    """``start_s`` and ``arrival_s`` of each send, computed by SimGrid ``version``."""

    version: str
    start_s: Floats
    arrival_s: Floats
    time_s: float


@cache
def interpreter() -> str | None:
    """Return a Python with a usable SimGrid, this one or the system's; None if neither has one."""
    for python in (sys.executable, shutil.which("python3", path=os.defpath)):
        if python and _run([python, "-I", "-c", _WANTED], "").returncode == 0:
            return python
    return None


def takes_turns(schedule: Schedule) -> bool:
    """Return whether sends hold links and ports one after the other, a mode that SimGrid can reproduce."""
    return not len(schedule.stream) and not (schedule.network.queues and len(schedule.network.ports))


def replay_in_simgrid(schedule: Schedule, *, turns: bool) -> InSimgrid:
    """Time a checked schedule in SimGrid; with ``turns`` sends take turns at ports, else they share them.

    Takes about a millisecond a send. Raises UnavailableError if SimGrid is not installed, DataError if it
    fails.
    """
    refuse_switches(schedule, "SimGrid")
    python = interpreter()
    if python is None:
        raise UnavailableError("the Python bindings of SimGrid 3.32 to 3.34 are not installed", hint=_HINT)
    given, unit_s = _given(schedule, turns=turns)
    done = _run([python, "-I", simgrid_engine.__file__], json.dumps(given))
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["nothing"]
        said = next((line for line in lines if "CRITICAL" in line), lines[-1])
        raise DataError("SimGrid", [f"it ended with status {done.returncode} and said: {said}"])
    found = json.loads(done.stdout)
    if None in found["arrival"]:
        raise DataError("SimGrid", [f"send {found['arrival'].index(None)} never arrives"])
    start_s, arrival_s = (np.array(found[name], np.float64) * unit_s for name in ("start", "arrival"))
    return InSimgrid(found["version"], start_s, arrival_s, float(arrival_s.max(initial=0.0)))


def _run(words: list[str], given: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, input=given, capture_output=True, text=True, check=False)


def _given(schedule: Schedule, *, turns: bool) -> tuple[dict[str, Any], float]:
    """Return the engine's input, with times in units of the shortest send, and that unit in seconds.

    For each send, ``needs`` is the last earlier send that brings its chunk to its source, ``entered_before``
    the last earlier send that brings its chunk to its target; -1 means none. ``queues`` lists for each send
    the numbers of the queues in which it takes turns.
    """
    network, size = schedule.network, schedule.chunk_bytes
    used, link = np.unique(schedule.link, return_inverse=True)
    unit_s = float(network.travel_s(size)[used].min(initial=np.inf)) if len(used) else 1.0
    rate = _SEND_BYTES * unit_s / size
    needs, entered_before = dependencies(schedule)
    ports = [network.ports_of(one).tolist() for one in used.tolist()]
    if len(schedule.stream):
        queues = [[one] for one in schedule.stream.tolist()]
    elif turns:
        queues = [[one, *(len(used) + port for port in ports[one])] for one in link.tolist()]
    else:
        queues = [[one] for one in link.tolist()]
    named = np.unique([port for each in ports for port in each]).astype(np.int64)
    place = {port: at for at, port in enumerate(named.tolist())}
    return {
        "bytes": _SEND_BYTES,
        "hold_alpha": network.hold_alpha,
        "port": [] if turns else (rate / network.port_s_per_byte[named]).tolist(),
        "link_ports": [[] if turns else [place[port] for port in each] for each in ports],
        "bandwidth": (rate / network.beta_s_per_byte[used]).tolist(),
        "alpha": (network.alpha_s[used] / unit_s).tolist(),
        "link": link.tolist(),
        "queues": queues,
        "needs": needs.tolist(),
        "entered_before": entered_before.tolist(),
    }, unit_s
