"""The protocol of peers: libraries whose own collectives run on the same buffers as ours, in the same run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from exec.program import Array, Buffers, KeptRun
from synth.collective import Collective

__all__ = ["Call", "Peer", "nothing"]


def nothing() -> None:
    """Nothing to do around a call."""


@dataclass(frozen=True, eq=False)
class Call:
    """A collective made ready: ``run`` is timed; ``prepare`` and ``settle`` go round it untimed.

    Where the library works on memory of its own, ``place`` brings the input there and ``fetch`` the
    result to ``result``; ``close`` frees. ``kept`` gives the log of the last run, where one is written.
    """

    run: Callable[[], object]
    result: Array
    prepare: Callable[[], object] = nothing
    settle: Callable[[], object] = nothing
    place: Callable[[], object] = nothing
    fetch: Callable[[], object] = nothing
    close: Callable[[], object] = nothing
    kept: Callable[[], KeptRun] | None = None


class Peer(Protocol):
    """A library, opened once for a benchmark on all of its ranks; ``name`` heads its columns.

    An ``optional`` one is left out of the sizes where it has nothing to offer.
    """

    optional: bool

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    def ready(self, collective: Collective, buffers: Buffers, redop: str) -> Call:
        """Return the library's own collective on ``buffers``; UnavailableError where it has none such."""
        ...

    def close(self) -> None:
        """Let go of the library; collective."""
        ...
