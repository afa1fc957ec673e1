"""`ccctl run`: one collective on data from files."""

from __future__ import annotations

from typing import Annotated

import typer

from ccctl import console
from ccctl.launch import World, run_ranks
from ccctl.options import Hostfile, Hosts, Json, Quiet, Ranks, TimeoutSeconds, Verbose

__all__ = ["EXAMPLES", "run"]

EXAMPLES = (
    ("ccctl run schedule.json --input x.npy -o y.npy", "the rows of x.npy are the ranks' buffers"),
    ("ccctl run program.json --input 'x{rank}.npy' -o 'y{rank}.npy'", "one file for each rank"),
    ("ccctl run schedule.json --input x.npy --op max --json", "run it and say only what happened"),
)


def run(
    artifact: Annotated[str, typer.Argument(metavar="SCHEDULE|PROGRAM", help="What to run; - reads stdin.")],
    data: Annotated[
        str,
        typer.Option(
            "--input", metavar="FILE", help="A .npy file whose rows are the ranks, or a name with {rank}."
        ),
    ],
    output: Annotated[
        str | None,
        typer.Option("-o", "--output", metavar="FILE", help="Write the results as .npy, rows or {rank}."),
    ] = None,
    op: Annotated[str, typer.Option("--op", metavar="OP", help="sum, prod, min or max.")] = "sum",
    ranks: Ranks = None,
    hosts: Hosts = None,
    hostfile: Hostfile = None,
    json: Json = False,
    timeout: TimeoutSeconds = None,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Run one collective on real data, over MPI.

    The input is float32, float64, int32 or int64. Only ranks that end with something have a row, or
    a file, in the output.
    """
    from ccctl.arrays import read_ranks, write_ranks
    from ccctl.programs import check_world, proven_program
    from exec.once import fitting
    from exec.redops import ufunc_of

    ufunc_of(op)
    program = proven_program(artifact).program
    world = World(check_world(program, ranks), hosts, hostfile)
    request = fitting(program, read_ranks(data, program.collective), op)
    outputs = run_ranks("exec.once:run_task", request, world, label="run", timeout_s=timeout)
    if output is not None:
        write_ranks(output, outputs)
    if output == "-":
        return
    values = {
        "collective": program.collective.label,
        "ranks": program.ranks,
        "dtype": request.inputs[0].dtype.name,
        "input_elements": max(given.size for given in request.inputs),
        "output_elements": max(found.size for found in outputs),
    }
    if json:
        console.summary(values)
    else:
        console.data(
            f"{program.name}: {values['input_elements']} elements of {values['dtype']} in, "
            f"{values['output_elements']} out, on {program.ranks} ranks"
        )
    console.next_step(f"ccctl bench {artifact} --vs mpi")
