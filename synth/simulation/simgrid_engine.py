"""A script that replays sends in SimGrid: JSON from stdin, JSON to stdout.

The script runs in an interpreter that has SimGrid's Python bindings. That is seldom the interpreter of this
project, so the script imports nothing of this project. `synth.simulation.simgrid` writes its input and
documents the columns.
"""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Iterable
from typing import Any

__all__ = ["replay"]

# Raw CM02: one flow over one link takes latency + bytes / bandwidth, and flows share links max-min fairly.
_MODEL = (
    "network/model:CM02",
    "network/crosstraffic:no",
    "network/TCP-gamma:0",
    "network/weight-S:0",
    "network/latency-factor:1",
    "network/bandwidth-factor:1",
    # Precision of times. The unit is the shortest send, and a float still resolves about 1e-7 at 1e9 units.
    "surf/precision:1e-7",
)
# Empty messages never end in SimGrid 3.32, so one byte is sent at this bandwidth, in practically no time.
_AT_ONCE = 1e18


def replay(given: dict[str, Any]) -> dict[str, Any]:
    """Start each send when its data have arrived and its turn has come; return all starts and arrivals."""
    import simgrid

    engine = simgrid.Engine(["replay"])
    for setting in _MODEL:
        simgrid.Engine.set_config(setting)
    zone = simgrid.NetZone.create_star_zone("network")
    sink = zone.create_host("sink", 1.0)
    zone.add_route(sink.netpoint, None, None, None, [], True)

    def source(name: str, latency: float, bandwidth: float, ports: list[Any]) -> Any:
        """Return a host whose messages to the sink go over a link of their own, and over ports."""
        link = zone.create_link(name, bandwidth)
        link.set_latency(latency)
        link.seal()
        host = zone.create_host(f"from {name}", 1.0)
        along = [simgrid.LinkInRoute(each) for each in (link, *ports)]
        zone.add_route(host.netpoint, None, None, None, along, False)
        return host

    ports = [zone.create_link(f"port {at}", bandwidth).seal() for at, bandwidth in enumerate(given["port"])]
    links = [
        source(f"link {at}", 0.0, bandwidth, [ports[port] for port in given["link_ports"][at]])
        for at, bandwidth in enumerate(given["bandwidth"])
    ]
    # Alpha is a second transfer, over a separate link, after the bytes have left the first. If the first
    # links had latencies, CM02 would share the ports unevenly, by latency.
    travel = {alpha: source(f"alpha {alpha!r}", alpha, _AT_ONCE, []) for alpha in set(given["alpha"]) - {0.0}}
    zone.seal()
    alpha_of = [given["alpha"][link] for link in given["link"]]
    sends = _Sends(given)

    def run() -> None:
        going: list[Any] = []
        about: list[tuple[int, bool]] = []

        def begin(rows: Iterable[int]) -> None:
            for row in rows:
                sends.start[row] = engine.clock
                going.append(simgrid.Comm.sendto_async(links[given["link"][row]], sink, given["bytes"]))
                about.append((row, True))

        begin(sends.first())
        while going:
            at = simgrid.Comm.wait_any(going)
            row, leaving = about[at]
            going[at], about[at] = going[-1], about[-1]
            going.pop()
            about.pop()
            if leaving:
                begin(sends.left(row))
            if leaving and alpha_of[row]:
                going.append(simgrid.Comm.sendto_async(travel[alpha_of[row]], sink, 1))
                about.append((row, False))
            else:
                begin(sends.arrived(row, engine.clock))

    simgrid.Actor.create("network", sink, run)
    engine.run()
    return {"version": str(simgrid.simgrid_version), "start": sends.start, "arrival": sends.arrival}


class _Sends:
    """The waiting sends: each waits for its data, and to be the first of each of its queues."""

    def __init__(self, given: dict[str, Any]) -> None:
        rows = len(given["link"])
        self.start: list[float | None] = [None] * rows
        self.arrival: list[float | None] = [None] * rows
        self._held_until_arrival: bool = given["hold_alpha"]
        self._needs: list[int] = given["needs"]
        self._entered_before: list[int] = given["entered_before"]
        self._enters_next: list[int | None] = [None] * rows
        for row, before in enumerate(self._entered_before):
            if before >= 0:
                self._enters_next[before] = row
        self._wanted_by: dict[int, list[int]] = {}
        for row, need in enumerate(self._needs):
            self._wanted_by.setdefault(need, []).append(row)
        self._complete = [False] * rows
        self._queues_of: list[list[int]] = given["queues"]
        count = 1 + max((queue for queues in self._queues_of for queue in queues), default=-1)
        self._waiting = [deque[int]() for _ in range(count)]
        for row, queues in enumerate(self._queues_of):
            for queue in queues:
                self._waiting[queue].append(row)
        self._busy = [False] * count

    def first(self) -> list[int]:
        """Return the sends that begin at once."""
        return self._next(range(len(self._waiting)))

    def left(self, row: int) -> list[int]:
        """Record that the bytes of a send have left its link; return the sends that begin now."""
        return [] if self._held_until_arrival else self._freed(row)

    def arrived(self, row: int, clock: float) -> list[int]:
        """Record that a send has arrived; return the sends that begin now."""
        self.arrival[row] = clock
        begun = self._freed(row) if self._held_until_arrival else []
        # A slot is complete up to a send only if every earlier send into that slot has arrived, too.
        at: int | None = row
        while at is not None and self.arrival[at] is not None:
            before = self._entered_before[at]
            if before >= 0 and not self._complete[before]:
                break
            self._complete[at] = True
            for wanting in self._wanted_by.get(at, ()):
                begun += self._next(self._queues_of[wanting])
            at = self._enters_next[at]
        return begun

    def _freed(self, row: int) -> list[int]:
        for queue in self._queues_of[row]:
            self._busy[queue] = False
        return self._next(self._queues_of[row])

    def _next(self, queues: Iterable[int]) -> list[int]:
        found = []
        for queue in queues:
            if self._waiting[queue] and self._may_start(row := self._waiting[queue][0]):
                for one in self._queues_of[row]:
                    self._waiting[one].popleft()
                    self._busy[one] = True
                found.append(row)
        return found

    def _may_start(self, row: int) -> bool:
        need = self._needs[row]
        return (need < 0 or self._complete[need]) and all(
            self._waiting[queue][0] == row and not self._busy[queue] for queue in self._queues_of[row]
        )


if __name__ == "__main__":
    json.dump(replay(json.load(sys.stdin)), sys.stdout)
