"""`ccctl verify`: whether a schedule, program, plan, certificate or groups are right."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import typer

from ccctl import console
from ccctl.arguments import (
    MOST_COUNT,
    GeneralOptions,
    Parameters,
    Seed,
    collective_option,
    is_listable,
    read_or_compiled,
)
from ccctl.artifacts import codec
from ccctl.completion import words
from ccctl.errors import FoundProblem, UsageError
from probes.base import parse_size, plural

if TYPE_CHECKING:
    from ccctl.artifacts import Artifact
    from exec.runtimes import RuntimeReport

__all__ = ["EXAMPLES", "verify"]

EXAMPLES = (
    ("ccctl verify schedule.json", "judge a schedule: causal, exclusive, complete"),
    ("ccctl verify program.json --json", "judge an emitted program, findings as one object"),
    ("ccctl verify ring.py -p ranks=16 -p instances=2", "judge what an algorithm in Python compiles to"),
    ("ccctl verify ring.xml --same-bits", "judge MSCCL's XML; all ranks must end with the same bits"),
    ("ccctl verify plan.json", "judge an execution plan of MSCCL++, whoever wrote it"),
    ("ccctl verify ring.xml --run", "run it as MSCCL's interpreter would, on real numbers"),
    ("ccctl verify accepted/certificate.json", "compute the verdict on a cluster again"),
)


@dataclass(frozen=True)
class VerifyOptions(GeneralOptions):
    """The arguments and options of ``verify``."""

    artifact: Annotated[
        str,
        typer.Argument(
            metavar="ARTIFACT",
            help="A schedule (plain, periodic or symmetric), program, MSCCL XML, plan of MSCCL++, "
            "file.py, groups or certificate; - reads stdin.",
        ),
    ]
    parameters: Parameters = None
    collective: Annotated[
        str | None,
        collective_option("The collective that a program must do, if its file says custom.", "KIND"),
    ] = None
    depth: Annotated[
        int,
        typer.Option(
            "--fifo", metavar="N", min=1, max=MOST_COUNT, help="Messages that a connection can buffer."
        ),
    ] = 2
    same_bits: Annotated[
        bool, typer.Option("--same-bits", help="Treat it as wrong if ranks add in different orders.")
    ] = False
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="RUNTIME",
            autocompletion=words.one_of("msccl", "rccl"),
            help="Also check the limits of msccl or rccl.",
        ),
    ] = None
    run: Annotated[
        bool,
        typer.Option(
            "--run",
            help="Also run a program or MSCCL XML as MSCCL's interpreter would, or a plan as "
            "MSCCL++'s executor would, on real numbers.",
        ),
    ] = False
    size: Annotated[
        str | None,
        typer.Option(
            "--size",
            metavar="SIZE",
            help="With --run: buffer size of a program. [short chunks, and chunks of several tiles]",
        ),
    ] = None
    seed: Seed = 0


def verify(options: VerifyOptions) -> None:
    """Prove a schedule or program, or list what is wrong with it.

    Exit status 1 if anything is wrong. Warnings leave it 0: scratch that nothing uses, or sums that ranks add
    in different orders, so that floating-point results differ in their last bits (--same-bits makes that
    wrong).

    A schedule is right if every rank sends only what it has by then, no link or port carries two sends at
    once, each contribution is added once, and every rank ends with what it wants. Of a periodic schedule one
    period is checked, also against all others that may overlap it, which proves any number of periods. Of a
    symmetric schedule the listed sends are checked, and by symmetry all others.

    A program is executed as it was emitted, with bounded FIFOs: right results, no race between threadblocks,
    no deadlock. A plan of MSCCL++ is checked by the rules of its executor: limits, paired channels, a wait
    for each signal, no deadlock, no data race over two launches, every contribution once. Groups that average
    parameters (ccctl training averaging): every rank counts the same, and ranks come to agree as fast as the
    file states.

    With --run the file also runs, from what it says alone: by MSCCL's interpreter with its FIFOs, slices and
    tiles, or by MSCCL++'s executor with its channels, semaphores and packets, on NumPy buffers. Threadblocks
    run in random orders (--seed), for several launches; all outputs are compared, and races and deadlocks are
    reported.

    A certificate of ccctl accept is right if its seal and the digests of the files beside it fit, and the
    verdict computed again from these files is the same.
    """
    kinds = *codec.SCHEDULE_KINDS, "program", "groups", "plan", "certificate"
    read = read_or_compiled(options.artifact, options.parameters, *kinds)
    judges = {
        **dict.fromkeys(codec.SCHEDULE_KINDS, _schedule),
        "groups": _groups,
        "plan": _plan,
        "certificate": _certificate,
    }
    judge = judges.get(
        read.kind, lambda found: _program(found, options.collective, options.depth, options.target)
    )
    verdict = judge(read)
    ran = None
    if options.run or options.size is not None:
        ran = _ran(read, options)
        verdict = replace(verdict, findings=verdict.findings or ran.findings)
    if options.same_bits:
        rest = tuple(caution for caution in verdict.cautions if caution not in verdict.other_bits)
        verdict = replace(verdict, findings=verdict.findings + verdict.other_bits, cautions=rest)
    if options.json:
        _summarize(read, verdict, ran)
    else:
        _tell(read, verdict, ran)
    if verdict.findings:
        count = plural(len(verdict.findings), "finding")
        what = read.body.noun if read.kind in codec.SCHEDULE_KINDS else read.kind
        wrong = "these groups are" if what == "groups" else f"this {what} is"
        raise FoundProblem(f"{read.source}: {count}: {wrong} wrong")
    if read.kind in codec.SCHEDULE_KINDS and is_listable(read.body):
        console.next_step(f"ccctl compile {read.source} -o program.json")


def _summarize(read: Artifact, verdict: _Verdict, ran: RuntimeReport | None) -> None:
    """Print the object of ``--json``."""
    extra: dict[str, object] = {"fifo_depth": verdict.fifo_depth} if read.kind == "program" else {}
    if ran is not None:
        extra["run"] = {name: getattr(ran, name) for name in ("launches", "actions", "elements", "wrong")}
    findings, cautions = list(verdict.findings), list(verdict.cautions)
    console.summary(
        {"ok": not findings, "kind": read.kind, "findings": findings, "cautions": cautions, **extra}
    )


def _tell(read: Artifact, verdict: _Verdict, ran: RuntimeReport | None) -> None:
    """Print the findings, or that all is proven; with findings, ``-q`` does not silence them."""
    with console.spoken(bool(verdict.findings)):
        for finding in verdict.findings or (verdict.proven,):
            console.data(finding)
        if ran is not None:
            console.data(_run_line(read, ran))
    for caution in verdict.cautions:
        console.warn(caution)


@dataclass(frozen=True)
class _Verdict:
    findings: tuple[str, ...]
    proven: str
    cautions: tuple[str, ...] = ()
    fifo_depth: int = 0
    other_bits: tuple[str, ...] = ()


def _schedule(read: Artifact) -> _Verdict:
    from synth.check import check

    return _Verdict(tuple(check(read.body)), f"proven: {read.body.proof}")


def _groups(read: Artifact) -> _Verdict:
    from synth.check import examine_groups

    groups = read.body
    found = examine_groups(groups)
    lemma = ""
    if found.lemma_from is not None:
        lemma = f", and Lemma IV.1 of DS-Sync holds from {plural(found.lemma_from, 'period')} on"
    return _Verdict(
        found.findings,
        f"proven: in the groups of {plural(groups.period, 'iteration')} every rank counts the same (doubly "
        f"stochastic matrices), and they join all {groups.ranks} ranks; rho {groups.rho:.4g} < 1{lemma}",
        found.cautions,
    )


def _plan(read: Artifact) -> _Verdict:
    from synth.mscclpp import examine_plan

    plan = read.body
    found = examine_plan(plan)
    return _Verdict(
        found.findings,
        f"proven: {plural(plan.operations, 'operation')} do {plan.collective} on {plan.ranks} ranks; "
        "no race, no deadlock, every signal waited for, every contribution exactly once",
        found.cautions,
    )


def _ran(read: Artifact, options: VerifyOptions) -> RuntimeReport:
    """Run a program or plan in its reference runtime; raises UsageError for anything else."""
    from ccctl.arguments import as_collective
    from exec.runtimes import try_in_runtime

    if not options.run:
        raise UsageError("--size: it is for --run")
    if read.kind not in ("program", "plan"):
        raise UsageError(
            f"--run: only programs, MSCCL XML and plans run, and {read.source} is none (it is of kind "
            f"{read.kind})",
            hint="ccctl compile makes a program of a schedule.",
        )
    made = read.body
    if options.collective and read.kind == "program":
        made = as_collective(made, options.collective)
    size_bytes = None if options.size is None else parse_size(options.size, "--size")
    return try_in_runtime(made, size_bytes, seed=options.seed)


def _run_line(read: Artifact, ran: RuntimeReport) -> str:
    """Return the line that says how the runs ended."""
    runtime = "MSCCL++'s executor" if read.kind == "plan" else "MSCCL's interpreter"
    results = (
        f"{ran.wrong} of {ran.elements} output elements wrong"
        if ran.elements
        else "the file does not say what the results must be"
    )
    return f"ran as {runtime} would: {ran.launches} launches, {ran.actions} actions; {results}"


def _certificate(read: Artifact) -> _Verdict:
    from ccctl.acceptance import recheck

    found = read.body
    return _Verdict(
        tuple(recheck(read.source, found)),
        f"unchanged: the verdict is {found.verdict!r} ({found.reason}), and it follows again from its "
        f"{plural(len(found.files), 'file')}, whose SHA-256 all match",
    )


def _program(read: Artifact, collective: str | None, depth: int, target: str | None) -> _Verdict:
    from ccctl.arguments import as_collective
    from synth.check import examine
    from synth.msccl import doubts, misread_steps
    from synth.portfolio import program_limits, stuck_above

    program = as_collective(read.body, collective) if collective else read.body
    found = examine(program, depth)
    limits = tuple(program_limits(program, target)) if target else ()
    within = f"; within the limits of {target}" if target else ""
    does = "run" if program.input_chunks else f"do {program.collective.label}"
    cautions = found.cautions + tuple(doubts(program, target or ""))
    loads_there = not (target or found.findings or program.uses_switches)
    other = (misread_steps(program) or [stuck_above(program)]) if loads_there else []
    if other and other[0]:
        cautions += (f"in MSCCL's runtimes, {other[0]}",)
    if program.input_chunks:
        cautions += (
            "the file declares a custom collective, so results were not checked: "
            "--collective says what they must be",
        )
    return _Verdict(
        found.findings + limits,
        f"proven: {program.steps} steps {does} on {program.ranks} ranks; no race; nothing is read before "
        f"it is written; every contribution exactly once; no deadlock even if a connection buffers only "
        f"{plural(found.fifo_depth, 'message')}{within}",
        cautions,
        found.fifo_depth,
        found.other_bits,
    )
