"""Proven programs from artifacts: schedules are checked and compiled, programs are judged."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ccctl.arguments.parameters import parse_parameters
from ccctl.artifacts import codec
from ccctl.errors import FoundProblem, UsageError
from probes.base import first_of
from synth.lang import compiled_algorithm, is_algorithm
from synth.schedules import SCHEDULE_KINDS

if TYPE_CHECKING:
    from synth.network import Network
    from synth.program import Program
    from synth.schedules import AnySchedule, Schedule

__all__ = [
    "Proven",
    "as_collective",
    "check_world",
    "is_listable",
    "listed",
    "proven_artifact",
    "proven_program",
    "proven_schedule",
    "read_or_compiled",
    "refuse_parameters",
    "refuse_unproven",
]

# A wrong program may have thousands of findings; the first ones show what is wrong.
_ENOUGH = 20
# The most sends of a program: compiler and judge take about ten seconds for them.
_MOST_SENDS = 500_000


@dataclass(frozen=True)
class Proven:
    """A program that the judge accepts, the schedule it was made of, if any, and file digests."""

    program: Program
    schedule: Schedule | None
    inputs: dict[str, str]
    compile_s: float


def read_or_compiled(path: str, parameters: Sequence[str] | None, *kinds: str) -> codec.Artifact:
    """Return an artifact of one of ``kinds``, or the unjudged program of a chunk-language file."""
    if not is_algorithm(path):
        return codec.read(path, *kinds)
    program, inputs = compiled_algorithm(path, parse_parameters(parameters))
    return codec.Artifact("program", program, path, inputs["algorithm"])


def proven_program(
    path: str,
    *kinds: str,
    parameters: Sequence[str] | None = None,
    network: Network | None = None,
    size_bytes: int | None = None,
    runtime: str = "",
    **how: Any,
) -> Proven:
    """Return the proven program of a schedule, program or chunk-language file ("-": stdin).

    For ``size_bytes`` a periodic schedule gets as many periods as carry that size, a symmetric schedule gets
    chunks of matching size, and a selection yields its schedule for that size. Nothing else takes a size.
    ``how`` are options of the compiler. Raises FoundProblem with the findings if the schedule or the program
    is wrong, or if a schedule's table of sends already shows that ``runtime`` cannot load it.
    """
    if not is_algorithm(path):
        refuse_parameters(path, parameters)
        found = codec.read(path, *(kinds or (*SCHEDULE_KINDS, "program")))
        if size_bytes is not None:
            if found.kind not in SCHEDULE_KINDS or found.body.is_listed:
                _refuse_size(path)
            found = replace(found, body=found.body.of_size(size_bytes))
        if runtime and found.kind in SCHEDULE_KINDS:
            _refuse_early(listed(found.body, path), path, runtime)
        return proven_artifact(found, **how)
    if size_bytes is not None:
        _refuse_size(path)
    begin = time.perf_counter()
    program, inputs = compiled_algorithm(path, parse_parameters(parameters), network=network, **how)
    return _judged(program, None, path, inputs, time.perf_counter() - begin)


def _refuse_early(schedule: Schedule, path: str, runtime: str) -> None:
    from synth.portfolio import early_limit

    if limit := early_limit(schedule, runtime):
        raise FoundProblem(
            f"{path}: {runtime} cannot load it: {limit}",
            hint=f"ccctl synth --for {runtime} finds the fastest schedule that fits.",
        )


def _refuse_size(path: str) -> None:
    raise UsageError(
        f"--size: {path} runs at any size; only periodic and symmetric schedules and selections take one"
    )


def proven_artifact(found: codec.Artifact, **how: Any) -> Proven:
    """Return the proven program of an artifact; a schedule is expanded into all its sends first."""
    inputs = {found.kind: found.sha256}
    if found.kind in SCHEDULE_KINDS:
        return proven_schedule(listed(found.body, found.source), found.source, inputs, **how)
    if found.body.input_chunks:
        raise UsageError(
            f"{found.source}: its collective is custom, so what its results must be is unknown",
            hint="ccctl verify --collective KIND judges it.",
        )
    return _judged(found.body, None, found.source, inputs, 0.0)


def proven_schedule(schedule: Schedule, source: str, inputs: dict[str, str], **how: Any) -> Proven:
    """Check a schedule, compile it and return the proven program."""
    from synth.check import check
    from synth.compiler import lower

    refuse_unproven(source, check(schedule))
    begin = time.perf_counter()
    program = lower(schedule, **{name: value for name, value in how.items() if value is not None})
    return _judged(program, schedule, source, inputs, time.perf_counter() - begin)


def is_listable(made: AnySchedule) -> bool:
    """Return whether the table of all sends is short enough to be compiled."""
    return made.is_listed or made.sends <= _MOST_SENDS


def listed(made: AnySchedule, source: str) -> Schedule:
    """Return the table of all sends.

    Raises FoundProblem if the schedule is wrong, UsageError if its table is too long.
    """
    from synth.check import check

    refuse_unproven(source, check(made))
    if not is_listable(made):
        raise UsageError(
            f"{source}: it stands for {made.sends} sends on {made.network.ranks} ranks, expected at most "
            f"{_MOST_SENDS} to list one by one",
            hint="A smaller --size or coarser chunks make fewer, and so do fewer ranks; ccctl simulate times "
            "it as it is.",
        )
    return made.expanded()


def _judged(
    program: Program, schedule: Schedule | None, source: str, inputs: dict[str, str], compile_s: float
) -> Proven:
    from synth.check import judge

    refuse_unproven(source, judge(program))
    return Proven(program, schedule, inputs, compile_s)


def refuse_parameters(path: str, parameters: Sequence[str] | None) -> None:
    """Raise UsageError if parameters are given for a file that has none."""
    if parameters:
        raise UsageError(f"-p {parameters[0]}: {path} has no parameters; only algorithms in Python do")


def as_collective(program: Program, kind: str) -> Program:
    """Return a custom program as one for collective ``kind``; raises UsageError if it cannot be.

    If input and output of the collective can never share memory, the program is out of place, whatever its
    file says.
    """
    from synth.collective import kind_of
    from synth.msccl import collective_of

    if not program.input_chunks:
        raise UsageError(f"--collective: the program already says that it does {program.collective.label}")
    per_loop = max(*program.input_chunks, *program.output_chunks, 1)
    wanted = collective_of(kind_of(kind), program.ranks, per_loop, 0)
    if problems := wanted.problems():
        raise UsageError(f"--collective {kind}: {problems[0]}")
    found = replace(program, collective=wanted, input_chunks=(), output_chunks=())
    return replace(found, in_place=False, out_of_place=True) if wanted.keeps_apart else found


def check_world(program: Program, ranks: int | None) -> int:
    """Return the program's number of ranks; raises UsageError if ``-n`` gives another number."""
    if ranks is not None and ranks != program.ranks:
        raise UsageError(
            f"-n asks for {ranks} ranks, {program.name} is for {program.ranks}",
            hint="Leave -n out, or synthesize for that many. -n of nccl-tests is --iters of ccctl bench.",
        )
    return program.ranks


def refuse_unproven(source: str, findings: Sequence[str]) -> None:
    """Raise FoundProblem, with the first findings of a judge, where there are any."""
    if findings:
        lines = [f"{source}: {finding}" for finding in first_of(findings, _ENOUGH, "finding")]
        raise FoundProblem(lines, hint="It is not proven, so nothing is done with it; see ccctl verify.")
