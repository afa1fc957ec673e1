"""`ccctl compile`: an algorithm, or a schedule, as the program that each rank executes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ccctl import console
from ccctl.arguments.options import Json, Output, Parameters, Quiet, Verbose
from ccctl.artifacts import codec
from ccctl.completion import words
from ccctl.errors import FoundProblem

if TYPE_CHECKING:
    from synth.program import Program

__all__ = ["EXAMPLES", "compile"]

EXAMPLES = (
    ("ccctl compile schedule.json -o program.json", "compile a schedule and keep the program"),
    ("ccctl compile schedule.json --json", "say only how large the program is"),
    ("ccctl compile schedule.json -o - | ccctl show -", "see the instructions of each rank"),
    (
        "ccctl compile ring.py -p ranks=8 --instances 2 -o ring.xml",
        "compile the chunk language to MSCCL XML",
    ),
    ("ccctl compile ring.xml --target msccl -o ring.json", "prove MSCCL XML and convert it"),
)


def compile(  # noqa: A001 - functions of commands are named as the command
    schedule: Annotated[
        str,
        typer.Argument(
            metavar="PROGRAM.py|SCHEDULE|XML",
            help="A file in the chunk language (file.py:function where it has several), a schedule, or MSCCL "
            "XML; - reads stdin.",
        ),
    ],
    parameters: Parameters = None,
    instances: Annotated[
        int | None,
        typer.Option(
            "--instances", metavar="N", min=1, max=64, help="Cut every chunk into N, carried in parallel."
        ),
    ] = None,
    fuse: Annotated[
        bool, typer.Option("--fuse/--no-fuse", help="Receive and pass on in one instruction where possible.")
    ] = True,
    network: Annotated[
        str | None,
        typer.Option(
            "--network", metavar="FILE", help="Every message needs a link of this profile or topology."
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="RUNTIME",
            autocompletion=words.one_of("msccl", "rccl"),
            help="Refuse what msccl or rccl cannot run.",
        ),
    ] = None,
    name: Annotated[str, typer.Option("--name", metavar="TEXT", help="What to call the program.")] = "",
    json: Json = False,
    output: Output = None,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Compile the chunk language, or a schedule, to threadblocks of instructions for every rank.

    A schedule is proven before, and every program after: every rank ends with the right result, no two
    threadblocks race, nothing deadlocks. A name that ends in .xml is written as MSCCL XML.
    """
    from dataclasses import replace

    from ccctl.arguments.networks import load_network
    from ccctl.arguments.proven import proven_program

    on = load_network(network, None, None)[0] if network else None
    found = proven_program(schedule, parameters=parameters, network=on, instances=instances, fuse=fuse)
    program = replace(found.program, name=name) if name else found.program
    _refuse_beyond(program, target)
    if output is not None:
        codec.write(output, "program", program, found.inputs)
    if output == "-":
        return
    _say(program, found.compile_s, json)
    console.next_step(f"ccctl bench {output or schedule} --vs mpi")


def _refuse_beyond(program: Program, target: str | None) -> None:
    from synth.msccl.limits import beyond

    findings = beyond(program, target) if target else []
    if findings:
        raise FoundProblem("\n".join(findings), hint="Fewer chunks, instances or ranks may fit.")


def _say(program: Program, compile_s: float, json: bool) -> None:
    from probes.wording import plural

    values = {
        "ranks": program.ranks,
        "instructions": program.steps,
        "threadblocks_max": program.threadblocks_max,
        "channels": program.channels,
        "compile_s": compile_s,
    }
    if json:
        console.summary(values)
    else:
        console.data(
            f"{program.name}: {program.steps} instructions on {program.ranks} ranks, at most "
            f"{plural(program.threadblocks_max, 'threadblock')} a rank, "
            f"{plural(program.channels, 'channel')}, compiled in {compile_s * 1e3:.1f} ms; proven"
        )
