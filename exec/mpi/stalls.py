"""Stalls: the rank for which a blocked interpreter waits, and ranks that are lost."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from exec.mpi import interpreter
from exec.mpi.encode import Tables
from synth.program import Program

__all__ = ["Neighbours", "waits_for"]

# A rank counts as lost if more checks in a row than this find it stopped. The plan makes two checks a second,
# so this takes over eight seconds. A launcher that watches the ranks reports the stop sooner, after five
# seconds (SILENCE_S in exec.launcher.watchdog).
_STOPPED_CHECKS = 16


class Neighbours:
    """The processes of other ranks of this host, checked while this rank waits for one of them."""

    def __init__(self, pids: Mapping[int, int]) -> None:
        self._pids = pids
        self._stopped = dict.fromkeys(pids, 0)

    def lost(self) -> str:
        """Return the description of a rank that has ended or has long been stopped; "" if there is none.

        Being stopped is counted in calls, not in seconds: when a whole job is suspended and resumed, this
        rank makes no calls meanwhile.
        """
        import psutil

        for rank, pid in self._pids.items():
            try:
                os.kill(pid, 0)
            except ProcessLookupError:
                return f"rank {rank} (pid {pid}) is gone"
            except PermissionError:
                continue
            with suppress(psutil.Error):
                status = psutil.Process(pid).status()
                if status == psutil.STATUS_ZOMBIE:
                    return f"rank {rank} (pid {pid}) is gone"
                self._stopped[rank] = self._stopped[rank] + 1 if status == psutil.STATUS_STOPPED else 0
            if self._stopped[rank] > _STOPPED_CHECKS:
                return f"rank {rank} (pid {pid}) was stopped (SIGSTOP)"
        return ""


def waits_for(program: Program, tables: Tables, arguments: tuple[Any, ...]) -> tuple[int, str]:
    """Return (peer waited for, place), such as (1, "rank 0 threadblock 1 step 3 (rrc)").

    The peer is -1 if no threadblock waits for another rank.
    """
    header, blocks, links = arguments[0], tables.blocks, arguments[5]
    best: tuple[int, str] = (-1, f"{program.name}: other ranks must still read its messages")
    for block in blocks.tolist():
        if block[interpreter.AT_TILE] >= header[interpreter.TILES]:
            continue
        row = tables.steps[block[interpreter.AT_STEP]]
        step = int(tables.step_of[block[interpreter.AT_STEP]])
        peer = _peer(program, header, links, row, step, block[interpreter.AT_TILE])
        tiles = int(header[interpreter.TILES])
        where = program.place(step) + (f", tile {block[interpreter.AT_TILE]} of {tiles}" if tiles > 1 else "")
        if peer >= 0:
            return peer, where
        best = (-1, where)
    return best


def _peer(program: Program, header: Any, links: Any, row: Any, step: int, tile: int) -> int:
    """Return the rank that must send or read a message next; -1 if the step waits for another step."""
    threadblock = program.tb_of[step]
    link = row[interpreter.IN]
    if link >= 0:
        runs = header[interpreter.RUN] * header[interpreter.TILES] + tile
        number = int(runs * links[link, interpreter.PER_TILE] + row[interpreter.IN_NUMBER])
        if ctypes.c_int64.from_address(_announcement_at(links[link], row, number)).value <= number:
            return int(program.tb_recv[threadblock])
    if row[interpreter.OUT] >= 0:
        return int(program.tb_send[threadblock])
    return -1


def _announcement_at(link: Any, row: Any, number: int) -> int:
    """Return the address that announces a message: the flag of its slot, or its connection's counter."""
    if not (row[interpreter.IN_SLOT] and link[interpreter.FLAG]):
        return int(link[interpreter.WRITTEN])
    at = number % link[interpreter.DEPTH]
    return int(link[interpreter.SLOTS] + at * link[interpreter.SLOT_BYTES] + link[interpreter.FLAG])
