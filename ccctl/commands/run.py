"""`ccctl run`: one collective on data from files."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from ccctl import console
from ccctl.arguments import (
    MOST_COUNT,
    Device,
    Hostfile,
    Hosts,
    Json,
    Parameters,
    Quiet,
    Ranks,
    TimeoutSeconds,
    Verbose,
    WiresOption,
    writable,
)
from ccctl.completion import words
from ccctl.errors import UsageError
from ccctl.launching import over_sockets, paced_between_hosts, run_ranks, world_of
from ccctl.runs import run_adaptively

if TYPE_CHECKING:
    from exec.run_once import RunRequest

__all__ = ["EXAMPLES", "run"]

EXAMPLES = (
    ("ccctl run schedule.json --input x.npy -o y.npy", "the rows of x.npy are the ranks' buffers"),
    ("ccctl run program.json --input 'x{rank}.npy' -o 'y{rank}.npy'", "one file for each rank"),
    ("ccctl run schedule.json --input x.npy --op max --json", "run it and say only what happened"),
    ("ccctl run --adaptive -n 4 --size 1M --iterations 50", "all_reduces that adapt to late and lost ranks"),
    ("ccctl run --adaptive -n 4 --collective broadcast@2 --size 1M", "another collective, from rank 2"),
    ("ccctl run ring.py -p ranks=4 --input x.npy -o y.npy", "run a program in the chunk language"),
)


def run(
    artifact: Annotated[
        str | None,
        typer.Argument(
            metavar="[SCHEDULE|SELECTION|PROGRAM|PROFILE]",
            help="What to run: an artifact, XML or file.py; - reads stdin. A selection runs what it has for "
            "the size of the input. With --adaptive a profile, or nothing: then the links are measured.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--input", metavar="FILE", help="A .npy file whose rows are the ranks, or a name with {rank}."
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            callback=writable,
            help="Write the results as .npy, rows or {rank}.",
        ),
    ] = None,
    parameters: Parameters = None,
    op: Annotated[
        str,
        typer.Option(
            "--op",
            metavar="OP",
            autocompletion=words.one_of(*words.REDOPS),
            help="sum, prod, min, max or avg.",
        ),
    ] = "sum",
    adaptive: Annotated[
        bool,
        typer.Option(
            "--adaptive",
            help="Run a collective many times on a session that adapts to links, late ranks and lost ones.",
        ),
    ] = False,
    collective: Annotated[
        str,
        typer.Option(
            "--collective",
            metavar="NAME[@ROOT]",
            autocompletion=words.spelled(*words.COLLECTIVES),
            help="With --adaptive: all_reduce, all_gather, reduce_scatter, all_to_all, broadcast or reduce.",
        ),
    ] = "all_reduce",
    size: Annotated[
        str, typer.Option("--size", metavar="SIZE", help="With --adaptive: the larger buffer of each rank.")
    ] = "8M",
    iterations: Annotated[
        int,
        typer.Option("--iterations", metavar="N", min=1, max=MOST_COUNT, help="With --adaptive: how many."),
    ] = 300,
    profile_every: Annotated[
        int,
        typer.Option(
            "--profile-every",
            metavar="N",
            min=0,
            max=MOST_COUNT,
            help="With --adaptive: measure the links every N iterations; 0 is never.",
        ),
    ] = 50,
    relays: Annotated[
        bool,
        typer.Option(
            "--relays/--no-relays",
            help="With --adaptive: go on without ranks that are late where that pays; they relay.",
        ),
    ] = True,
    rejoin: Annotated[
        int,
        typer.Option(
            "--rejoin",
            metavar="N",
            min=0,
            max=MOST_COUNT,
            help="With --adaptive: start a lost rank again up to N times; it joins the others.",
        ),
    ] = 0,
    spare: Annotated[
        str | None,
        typer.Option(
            "--spare",
            autocompletion=words.hosts,
            metavar="HOSTS",
            help="With --adaptive: hosts, as for --hosts, whose ranks join once they answer.",
        ),
    ] = None,
    device: Device = "cpu",
    wires: WiresOption = "auto",
    ranks: Ranks = None,
    hosts: Hosts = None,
    hostfile: Hostfile = None,
    json: Json = False,
    timeout: TimeoutSeconds = None,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Run one collective on real data, or many with --adaptive.

    The input is of floats or integers; all ranks have the same type. Only ranks that end with something
    have a row, or a file, in the output.

    With --adaptive every element of every result is checked; what the session measures, plans anew and
    changes to is printed as it happens. It needs no MPI, and goes on when ranks or hosts die. With --rejoin
    lost ranks are started again, and let in between two requests; so are ranks on the hosts of --spare,
    which need not answer at the start and are tried at least once a minute.
    """
    if adaptive:
        if data is not None or output is not None:
            raise UsageError("--adaptive makes its own data: leave out --input and -o")
        run_adaptively(
            artifact,
            replace(world_of(ranks, hosts, hostfile), spare=spare),
            collective,
            size,
            iterations,
            profile_every,
            relays=relays,
            rejoin=rejoin,
            json=json,
            timeout_s=timeout,
        )
        return
    if spare is not None:
        raise UsageError("--spare goes with --adaptive; else all ranks are there from the start")
    if artifact is None or data is None:
        missing = "a schedule or a program" if artifact is None else "--input"
        raise UsageError(f"expected {missing}, found none", hint="ccctl run schedule.json --input x.npy")
    if collective != "all_reduce":
        raise UsageError("--collective goes with --adaptive; else the artifact says which collective it is")
    from ccctl.arguments import check_world, contestants, read_ranks, write_ranks
    from exec.executors import parse_device
    from exec.peers import library_of
    from exec.program import size_bytes_of, ufunc_of
    from exec.run_once import fitting

    ufunc_of(op)
    parse_device(device)
    sockets = over_sockets(wires)
    [found] = contestants([artifact], parameters, None, library_of(device, sockets=sockets))
    program = found.proven.program
    world = world_of(check_world(program, ranks), hosts, hostfile)
    request = fitting(program, read_ranks(data, program.collective), op, data, device)
    if found.selection is not None:
        size_bytes = size_bytes_of(program.collective, request.count, request.inputs[0].dtype.itemsize)
        program = found.at(size_bytes).program
        request = replace(request, program=program, library=found.library(size_bytes))
    if wires == "auto" and not request.library:
        sockets = paced_between_hosts([program], world)
    _refuse_crowding(request, here=not (world.hosts or world.hostfile))
    outputs, how = run_ranks(
        "exec.run_once:run_task", request, world, label="run", timeout_s=timeout, sockets=sockets
    )
    if how:
        console.note(how)
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


def _refuse_crowding(request: RunRequest, *, here: bool) -> None:
    """Raise UnavailableError where this host lacks the memory to hand out the data and gather the results."""
    from exec.memory_demand import start_needs
    from exec.program import Layout
    from probes.live import refuse_crowding, rooms

    layout = Layout(request.program, request.count)
    found, host = rooms(), socket.gethostname()
    needs = start_needs(layout, request.inputs[0].dtype.itemsize, here=here)
    refuse_crowding([(host, found, need) for need in needs], request.program.collective.label)
