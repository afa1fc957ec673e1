"""Programs from artifacts: a schedule is proven and compiled on the way, a program is judged."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ccctl import artifacts
from ccctl.errors import DataError, UsageError

if TYPE_CHECKING:
    from synth.program import Program
    from synth.schedule import Schedule

__all__ = ["Proven", "check_world", "proven_program"]


@dataclass(frozen=True)
class Proven:
    """A program that the judge accepts, the schedule it was made of if there was one, and its file."""

    program: Program
    schedule: Schedule | None
    inputs: dict[str, str]
    compile_s: float


def proven_program(path: str, *kinds: str) -> Proven:
    """Read a schedule or a program ("-": stdin); raises DataError with every finding against it."""
    found = artifacts.read(path, *(kinds or ("schedule", "program")))
    from synth.compiler.replay import judge

    program, schedule, compile_s = found.body, None, 0.0
    if found.kind == "schedule":
        from synth.check import check
        from synth.compiler.lower import lower

        schedule = found.body
        _refuse(found.source, check(schedule))
        begin = time.perf_counter()
        program = lower(schedule)
        compile_s = time.perf_counter() - begin
    _refuse(found.source, judge(program))
    return Proven(program, schedule, {found.kind: found.sha256}, compile_s)


def check_world(program: Program, ranks: int | None) -> int:
    """How many ranks to start: those of the program; raises UsageError where ``-n`` says otherwise."""
    if ranks is not None and ranks != program.ranks:
        raise UsageError(
            f"-n asks for {ranks} ranks, {program.name} is for {program.ranks}",
            hint="Leave -n out, or synthesize for that many ranks.",
        )
    return program.ranks


def _refuse(source: str, findings: list[str]) -> None:
    if findings:
        raise DataError(source, findings, hint="It is not run: ccctl verify shows what is wrong.")
