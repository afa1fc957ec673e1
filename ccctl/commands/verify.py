"""`ccctl verify`: is this schedule, or this program, right?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ccctl import artifacts, console
from ccctl.errors import FoundProblem
from ccctl.options import Json, Quiet, Verbose

if TYPE_CHECKING:
    from ccctl.artifacts import Artifact

__all__ = ["EXAMPLES", "verify"]

EXAMPLES = (
    ("ccctl verify schedule.json", "judge a schedule: causal, exclusive, complete"),
    ("ccctl verify program.json --json", "judge an emitted program, findings as one object"),
)


def verify(
    artifact: Annotated[str, typer.Argument(metavar="ARTIFACT", help="A schedule or program; - is stdin.")],
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Prove a schedule or program, or list everything that is wrong with it (exit 1).

    A schedule: every send is causal, no link or port carries two at once, each contribution is reduced
    once, every rank ends with what it wants. A program: it is replayed as emitted, with bounded FIFOs.
    """
    read = artifacts.read(artifact, "schedule", "program")
    findings, proven = _judge(read)
    if json:
        console.summary({"ok": not findings, "kind": read.kind, "findings": findings})
    elif findings:
        for finding in findings:
            console.data(finding)
    else:
        console.data(proven)
    if findings:
        count = f"{len(findings)} finding{'s' if len(findings) != 1 else ''}"
        raise FoundProblem(f"{read.source}: {count}: this {read.kind} is wrong")
    if read.kind == "schedule":
        console.next_step(f"ccctl compile {read.source} -o program.json")


def _judge(read: Artifact) -> tuple[list[str], str]:
    """(findings, what is proven if there are none)."""
    if read.kind == "schedule":
        from synth.check import check

        schedule = read.body
        return check(schedule), (
            f"proven: {schedule.sends} sends do {schedule.collective.label} on "
            f"{schedule.network.ranks} ranks: "
            "every send is causal, every link and port exclusive, every result complete"
        )
    from synth.compiler.replay import judge

    program = read.body
    return judge(program), (
        f"proven: {program.steps} steps do {program.collective.label} on {program.ranks} ranks; "
        "no deadlock, no unwritten slot, every contribution exactly once"
    )
