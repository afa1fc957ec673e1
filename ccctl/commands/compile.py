"""`ccctl compile`: a schedule as the program that each rank executes."""

from __future__ import annotations

from typing import Annotated

import typer

from ccctl import artifacts, console
from ccctl.options import Json, Output, Quiet, Verbose

__all__ = ["EXAMPLES", "compile"]

EXAMPLES = (
    ("ccctl compile schedule.json -o program.json", "compile a schedule and keep the program"),
    ("ccctl compile schedule.json --json", "say only how large the program is"),
    ("ccctl compile schedule.json -o - | ccctl show -", "see the instructions of each rank"),
)


def compile(  # noqa: A001 - functions of commands are named as the command
    schedule: Annotated[str, typer.Argument(metavar="SCHEDULE", help="The schedule; - reads stdin.")],
    name: Annotated[str, typer.Option("--name", metavar="TEXT", help="What to call the program.")] = "",
    json: Json = False,
    output: Output = None,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Compile a schedule to a program: threadblocks of instructions for every rank.

    The schedule is proven before, and the program after: every rank ends with the right result, no
    two threadblocks race, nothing deadlocks.
    """
    from dataclasses import replace

    from ccctl.pictures.units import plural
    from ccctl.programs import proven_program

    found = proven_program(schedule, "schedule")
    program = replace(found.program, name=name) if name else found.program
    if output is not None:
        artifacts.write(output, "program", program, found.inputs)
    if output == "-":
        return
    values = {
        "ranks": program.ranks,
        "instructions": program.steps,
        "threadblocks_max": program.threadblocks_max,
        "channels": program.channels,
        "compile_s": found.compile_s,
    }
    if json:
        console.summary(values)
    else:
        console.data(
            f"{program.name}: {program.steps} instructions on {program.ranks} ranks, at most "
            f"{program.threadblocks_max} threadblocks a rank, {plural(program.channels, 'channel')}, "
            f"compiled in {found.compile_s * 1e3:.1f} ms; proven"
        )
    console.next_step(f"ccctl bench {output or schedule} --vs mpi")
