"""What ``bench`` puts in a row: each artifact as a program for every size, with its predicted time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ccctl import artifacts
from ccctl.errors import UsageError
from ccctl.programs import Proven, proven_program

if TYPE_CHECKING:
    from synth.network import Network
    from synth.program import Program

__all__ = ["Contestant", "contestants"]


@dataclass(frozen=True)
class Contestant:
    """One artifact of the command line: what runs at a size, and where it came from."""

    name: str
    proven: Proven
    network: Network | None

    def at(self, size_bytes: int) -> Proven:
        """What runs at a size."""
        return self.proven

    def predicted_s(self, size_bytes: int, count: int, itemsize: int) -> float | None:
        """The simulated seconds; None for a program without a profile, for it has no network."""
        from exec.layout import Layout
        from exec.predict import onto, predicted_s
        from synth.simulate_program import simulate_program

        found = self.at(size_bytes)
        chunk_bytes = max(1, Layout(found.program, count).largest * itemsize)
        if found.schedule is not None:
            schedule = onto(found.schedule, self.network) if self.network else found.schedule
            return predicted_s(schedule, chunk_bytes)
        if self.network is None:
            return None
        return simulate_program(found.program, self.network, chunk_bytes).time_s


def contestants(
    paths: Sequence[str], parameters: Sequence[str] | None, profile: str | None
) -> list[Contestant]:
    """Every artifact of ``paths``, proven, all for one collective; raises UsageError where they differ."""
    network = _network(profile)
    proven = [proven_program(path, parameters=parameters) for path in paths]
    names = _names(paths, [found.program for found in proven])
    found = [Contestant(name, one, network) for name, one in zip(names, proven, strict=True)]
    for path, one in zip(paths[1:], proven[1:], strict=True):
        _refuse_another(paths[0], proven[0].program, path, one.program)
    for path, one in zip(paths, proven, strict=True):
        if network is not None and network.ranks != one.program.ranks:
            raise UsageError(f"{path} is for {one.program.ranks} ranks, {profile} has {network.ranks}")
    return found


def _network(profile: str | None) -> Network | None:
    if profile is None:
        return None
    from synth.measured import from_profile

    return from_profile(artifacts.read(profile, "profile").body, profile)


def _names(paths: Sequence[str], programs: Sequence[Program]) -> list[str]:
    """The programs' own names where these differ, else the files'."""
    own = [program.name for program in programs]
    return own if len(set(own)) == len(own) else [Path(path).name for path in paths]


def _refuse_another(first_path: str, first: Program, path: str, other: Program) -> None:
    both = [(one.collective.kind, one.ranks, one.collective.root) for one in (first, other)]
    if both[0] == both[1] and first.collective.whole and other.collective.whole:
        return
    raise UsageError(
        f"{path} is {other.collective.label} on {other.ranks} ranks, "
        f"{first_path} {first.collective.label} on {first.ranks}: only one collective can be compared"
    )
