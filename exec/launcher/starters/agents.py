"""Start of ranks without MPI: by one agent on each host, reached by srun or a remote shell.

The agents are independent of each other, so the death of a rank, an agent or a whole host takes nothing else
down.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from exec.launcher import START, HostSlots
from exec.launcher.starters import starter
from exec.launcher.starters.remote import on_host
from exec.launcher.starters.starter import FORWARDED, how_it_ended
from probes.base import UnavailableError

__all__ = ["Agents"]

_AGENT = "exec.launcher.starters.host_agent"
# The variables that say what carries data between ranks joined by sockets: all ranks must read the same.
_WIRES = ("CCCTL_WIRES", "UCX_TLS")
# Longest wait for an agent's report of a death, which takes milliseconds if its host can be reached.
_TOLD_S = 0.5
# Seconds for which a rank counts as running after its agent has seen it run.
_SEEN_S = 2.0
# A remote agent whose ranks have all ended waits this long for orders, because its connection may be cut.
_PATIENCE_S = 5.0


class _Agent:
    """The agent of one host: it takes orders on its stdin and reports ends on its stdout."""

    def __init__(self, entry: HostSlots, ranks: range, env: Mapping[str, str], output: Path) -> None:
        program = [sys.executable, "-P", "-m", _AGENT]
        words = program if entry.is_here else on_host(entry.host, program, env)
        with output.open("ab") as log:
            try:
                self.process = subprocess.Popen(
                    words,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=env,
                    start_new_session=True,
                )
            except OSError as error:
                raise UnavailableError(f"{words[0]}: cannot be started: {error.strerror}") from error
        assert self.process.stdin is not None and self.process.stdout is not None
        self._orders, self._answers = self.process.stdin.fileno(), self.process.stdout.fileno()
        os.set_blocking(self._orders, False)
        os.set_blocking(self._answers, False)
        self.entry, self.host, self.ranks = entry, entry.host, ranks
        self.statuses, self.seen_s = dict[int, int](), dict[int, float]()
        self._heard, self._over = b"", False
        self.tell(
            json.dumps(
                {
                    "first": ranks.start,
                    "stop": ranks.stop,
                    "folder": env.get("PWD", ""),
                    "program": starter.rank_program(),
                    "environment": {name: env[name] for name in (*FORWARDED, *_WIRES) if name in env},
                    # A pipe within a host always breaks when this process ends.
                    "patience_s": None if entry.is_here else _PATIENCE_S,
                }
            )
        )

    def tell(self, line: str) -> None:
        """Send one line; an agent that cannot be reached is ignored."""
        if not self._over:
            with contextlib.suppress(OSError):
                os.write(self._orders, line.encode() + b"\n")

    def hear(self) -> None:
        """Read the agent's reports; a remote shell may print lines of its own before them."""
        with contextlib.suppress(OSError):
            while piece := os.read(self._answers, 1 << 16):
                self._heard += piece
        *lines, self._heard = self._heard.split(b"\n")
        for line in lines:
            match line.split():
                case [b"ended", rank, status]:
                    self.statuses[int(rank)] = int(status)
                case [b"runs", rank]:
                    self.seen_s[int(rank)] = time.monotonic()

    def listen(self, limit_s: float) -> None:
        """Wait until the agent reports something."""
        poll = select.poll()
        poll.register(self._answers, select.POLLIN)
        poll.poll(max(1, int(1000 * limit_s)))
        self.hear()

    def hang_up(self) -> None:
        """Close the pipe of orders, which makes the agent end its ranks and itself."""
        self._over = True
        with contextlib.suppress(OSError):
            self.process.stdin.close()  # type: ignore[union-attr]  # it has a pipe


class Agents:
    """The agents that start the ranks of one run; ``spares`` are hosts of ranks that come later.

    A rank that is started later has a separate agent, because its host's agent may have ended with the host.
    """

    label = "ranks"

    def __init__(
        self,
        ranks: int,
        hosts: Sequence[HostSlots],
        env: Mapping[str, str],
        output: Path,
        spares: Mapping[int, HostSlots],
    ) -> None:
        """Start ``ranks`` processes on the slots of ``hosts`` in order, or here if there are none.

        Raises UnavailableError if other hosts cannot be reached.
        """
        self._agents, self._env, self._output, self._spares = list[_Agent](), env, output, spares
        first = 0
        try:
            for entry in hosts or (HostSlots(socket.gethostname(), ranks),):
                numbers = range(first, min(first + entry.slots, ranks))
                if numbers:
                    self._agents.append(_Agent(entry, numbers, env, output))
                first = numbers.stop
        except BaseException:
            self.terminate()
            raise

    @property
    def pids(self) -> frozenset[int]:
        return frozenset(agent.process.pid for agent in self._agents)

    def ended(self, heard: Collection[int]) -> str:
        for agent in self._agents:
            agent.hear()
            unheard = [rank for rank in agent.ranks if rank not in heard]
            for rank in unheard:
                if rank in agent.statuses:
                    return f"rank {rank} (host {agent.host}) {how_it_ended(agent.statuses[rank])}"
            if unheard and (status := agent.process.poll()) is not None:
                return f"{agent.process.args[0]!s} for host {agent.host} ended with status {status}"  # type: ignore[index]
        return ""

    def how_it_died(self, rank: int) -> str:
        agent = self._of(rank)
        deadline_s = time.monotonic() + _TOLD_S
        agent.hear()
        while rank not in agent.statuses and time.monotonic() < deadline_s:
            over = agent.process.poll() is not None
            agent.listen(deadline_s - time.monotonic())
            if over:
                break
        return how_it_ended(agent.statuses[rank]) if rank in agent.statuses else "died"

    def blamed(self) -> list[tuple[int, int | None, str]]:
        """Return (rank, None, host) of each rank that a signal ended; process ids are unknown."""
        return [
            (rank, None, agent.host)
            for agent in self._agents
            for rank, status in agent.statuses.items()
            if status < 0
        ]

    def look_at(self, rank: int) -> None:
        self._of(rank).tell(f"look {rank}")

    def seen_running(self, rank: int) -> bool:
        agent = self._of(rank)
        agent.hear()
        return time.monotonic() - agent.seen_s.get(rank, -math.inf) < _SEEN_S

    def kill(self, rank: int) -> None:
        agent = self._found(rank)
        if agent is not None:
            agent.tell(f"kill {rank}")

    def restart(self, rank: int, start: int) -> None:
        before = self._found(rank)
        env = {**self._env, START: str(start)}
        entry = self._spares[rank] if before is None else before.entry
        self._agents.append(_Agent(entry, range(rank, rank + 1), env, self._output))
        if before is not None and len(before.ranks) == 1:
            # The earlier agent, if it can be reached, has killed its only rank and may end.
            before.tell("done")

    def failed_again(self, rank: int) -> str:
        agent = self._of(rank)
        over = agent.process.poll()
        agent.hear()
        if rank in agent.statuses:
            return how_it_ended(agent.statuses[rank])
        return "" if over is None else f"could not be started on host {agent.host} (status {over})"

    def terminate(self) -> None:
        for agent in self._agents:
            agent.hang_up()

    def wait(self, limit_s: float) -> bool:
        deadline_s = time.monotonic() + limit_s
        for agent in self._agents:
            agent.tell("done")
        for agent in self._agents:
            with contextlib.suppress(subprocess.TimeoutExpired):
                agent.process.wait(max(0.0, deadline_s - time.monotonic()))
        return all(agent.process.poll() is not None for agent in self._agents)

    def close(self) -> None:
        for agent in self._agents:
            agent.hang_up()
            agent.process.stdout.close()  # type: ignore[union-attr]  # it has a pipe

    def _of(self, rank: int) -> _Agent:
        agent = self._found(rank)
        assert agent is not None, f"rank {rank} was never started"
        return agent

    def _found(self, rank: int) -> _Agent | None:
        """Return the agent that last started a rank; None for a spare that has not been started yet."""
        return next((agent for agent in reversed(self._agents) if rank in agent.ranks), None)
