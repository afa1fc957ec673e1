"""Measurement of a profile that skips dead hosts and keeps its results when interrupted."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ccctl import console
from ccctl.errors import LockHeldError, UnavailableError
from ccctl.host_search import answering
from ccctl.launching import World, placed, run_ranks, started_by_mpi, without_hosts
from exec.launcher import HostSlots, fold

if TYPE_CHECKING:
    from probes.link_costs import FindingKind, Profile
    from probes.profiling import Effort, RawSamples

__all__ = ["ProfileRun"]

_TASK = "probes.profiling.task:profile"
# The watchdog finds silent ranks sooner (FAR_SILENCE_S), so this concerns ranks that hang.
_STALL_S = 15.0


@dataclass
class ProfileRun:
    """One measurement of the links of ``world``, whose partial result survives an interruption.

    ``missing`` maps each unreachable host to the reason. ``label`` is the name of the progress bar.
    """

    effort: Effort
    world: World
    timeout_s: float | None
    missing: dict[str, str] = field(default_factory=dict)
    label: str = "profile"
    _pieces: list[Any] = field(default_factory=list)
    _began_s: float = field(default_factory=time.monotonic)

    def result(self) -> Profile:
        """Return the profile, without hosts that cannot be reached.

        Raises the errors of ``run_ranks``; a LockHeldError gets a hint.
        """
        try:
            found = self._run(self.world, self.timeout_s)
        except LockHeldError as error:
            error.hint = "Try again later, or wait for the other measurement with --wait SECONDS."
            raise
        except UnavailableError as error:
            left = self._reachable(error)
            found = self._run(left, self._left_s())
        return self._with_missing(found)

    def partial(self, why: str) -> Profile | None:
        """Return the profile of the links measured so far, or None if there are none.

        ``why`` is the reason for which the measurement ended early.
        """
        from probes.profiling import rescued

        found = rescued(self._pieces, why, time.monotonic() - self._began_s)
        return None if found is None else self._with_missing(found)

    def samples(self) -> RawSamples:
        """Return all samples that the ranks have handed on; after a finished profile they are complete."""
        from probes.profiling import raw_samples

        return raw_samples(self._pieces)

    def problem(self) -> str:
        """Return a sentence that names the missing hosts; "" if all were measured."""
        if not self.missing:
            return ""
        every = len(placed(self.world)[1])
        return (
            f"{fold(self.missing)} did not answer; {every - len(self.missing)} of {every} hosts were measured"
        )

    def _run(self, world: World, timeout_s: float | None) -> Profile:
        from ccctl.runs.links_live import LinksLive

        live = LinksLive()

        def keep(piece: object) -> None:
            self._pieces.append(piece)
            live.heard(piece)

        found: Profile = run_ranks(
            _TASK,
            self.effort,
            world,
            label=self.label,
            timeout_s=timeout_s,
            stall_s=_STALL_S,
            keep=keep,
            below=live.lines,
        )
        return found

    def _reachable(self, error: UnavailableError) -> World:
        """Return the world without its unreachable hosts.

        Raises ``error`` if every host can be reached, there is only one host, MPI started the ranks, or there
        are results already. Raises another UnavailableError if fewer than two ranks are left.
        """
        where = () if started_by_mpi() else placed(self.world)[1]
        if len(where) < 2 or self._pieces:
            raise error
        console.note(f"{error.message.splitlines()[0]}: looking for the hosts that cannot be reached")
        left_s = self._left_s()
        missing = answering(
            [entry.host for entry in where],
            "profile",
            None if left_s is None else time.monotonic() + left_s,
        )
        left = [entry for entry in where if entry.host not in missing]
        if not missing or sum(entry.slots for entry in left) < 2:
            raise _lost(error, missing, where)
        self.missing = missing
        for host, reason in missing.items():
            console.warn(f"{host} is left out: {reason}")
        return without_hosts(self.world, missing)

    def _with_missing(self, found: Profile) -> Profile:
        lost = tuple(f"host {host} is not measured: {reason}" for host, reason in self.missing.items())
        kinds: list[FindingKind] = ["dead" for _ in lost]
        return replace(found, findings=(*lost, *found.findings), finding_kinds=(*kinds, *found.finding_kinds))

    def _left_s(self) -> float | None:
        if self.timeout_s is None:
            return None
        return max(0.0, self.timeout_s + self._began_s - time.monotonic())


def _lost(
    error: UnavailableError, missing: Mapping[str, str], where: Sequence[HostSlots]
) -> UnavailableError:
    if not missing:
        return error
    return UnavailableError(
        f"{fold(missing)} of {len(where)} hosts cannot be reached, too few are left to measure a link: "
        f"{next(iter(missing.values()))}",
        hint="ssh to each must work without a password, and ccctl be installed there at the same place.",
    )
