"""`ccctl run`: one collective on data from files."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import TYPE_CHECKING

from ccctl import console
from ccctl.arguments import RunOptions, check_world
from ccctl.errors import UsageError
from ccctl.launching import over_sockets, paced_between_hosts, run_ranks
from ccctl.runs import run_adaptively

if TYPE_CHECKING:
    from exec.run_once import RunRequest

__all__ = ["EXAMPLES", "run"]

EXAMPLES = (
    ("ccctl run schedule.json --input x.npy -o y.npy", "the rows of x.npy are the ranks' buffers"),
    ("ccctl run program.json --input 'x{rank}.npy' -o 'y{rank}.npy'", "one file for each rank"),
    ("ccctl run schedule.json --input x.npy --op max --json", "take the maximum, and print only a summary"),
    ("ccctl run --adaptive -n 4 --size 1M --iterations 50", "all_reduces that adapt to late and lost ranks"),
    ("ccctl run --adaptive -n 4 --collective broadcast@2 --size 1M", "another collective, from rank 2"),
    ("ccctl run ring.py -p ranks=4 --input x.npy -o y.npy", "run an algorithm in Python"),
)


_MAKES_INPUT = 'import numpy; numpy.save("x.npy", numpy.ones((4, 1024), numpy.float32))'


def run(options: RunOptions) -> None:
    """Run one collective on real data, or many with --adaptive.

    The input is of floats or integers; all ranks have the same type. The output has a row, or a file, for
    each rank that ends with data.

    With --adaptive every element of every result is checked. Measurements, new plans and changes of the
    schedule are printed as they happen. It needs no MPI, and goes on when ranks or hosts die. With --rejoin
    lost ranks are started again and join between two requests; so do ranks on the hosts of --spare, which
    need not answer at the start and are tried at least once a minute.
    """
    if options.adaptive:
        if options.data is not None or options.output is not None:
            raise UsageError("--adaptive makes its own data: leave out --input and -o")
        run_adaptively(options, replace(options.world(options.ranks), spare=options.spare))
        return
    if options.spare is not None:
        raise UsageError("--spare goes with --adaptive; else all ranks are there from the start")
    if options.artifact is None or options.data is None:
        missing = "a schedule or a program" if options.artifact is None else "--input"
        hint = f"ccctl run schedule.json --input x.npy; for 4 ranks, python -c '{_MAKES_INPUT}' makes one"
        raise UsageError(f"expected {missing}, found none", hint=hint)
    if options.collective != "all_reduce":
        raise UsageError("--collective goes with --adaptive; else the artifact says which collective it is")
    from ccctl.artifacts import write_output
    from exec.program import npy_files

    request = _request(options, options.artifact, options.data)
    program, sockets = request.program, over_sockets(options.wires)
    world = options.world(check_world(program, options.ranks))
    if options.wires == "auto" and not request.library:
        sockets = paced_between_hosts([program], world)
    _refuse_crowding(request, here=not (world.hosts or world.hostfile))
    outputs, how = run_ranks(
        "exec.run_once:run_task", request, world, label="run", timeout_s=options.timeout, sockets=sockets
    )
    if how:
        console.note(how)
    if options.output is not None:
        for name, content in npy_files(options.output, outputs).items():
            write_output(name, content)
    if options.output == "-":
        return
    values = {
        "collective": program.collective.label,
        "ranks": program.ranks,
        "dtype": request.inputs[0].dtype.name,
        "input_elements": max(given.size for given in request.inputs),
        "output_elements": max(found.size for found in outputs),
    }
    if options.json:
        console.summary(values)
    else:
        console.data(
            f"{program.name}: {values['input_elements']} elements of {values['dtype']} in, "
            f"{values['output_elements']} out, on {program.ranks} ranks; "
            "the results were not checked (ccctl bench checks them)"
        )
    console.next_step(f"ccctl bench {options.artifact} --vs mpi")


def _request(options: RunOptions, path: str, data: str) -> RunRequest:
    """Return the request to run the artifact on this data; a selection chooses by its size."""
    from ccctl.arguments import contestants
    from exec.executors import parse_device
    from exec.peers import library_of
    from exec.program import read_ranks, size_bytes_of, ufunc_of
    from exec.run_once import fitting

    ufunc_of(options.op)
    parse_device(options.device)
    library = library_of(options.device, sockets=over_sockets(options.wires))
    [found] = contestants([path], options.parameters, None, library)
    program = found.proven.program
    check_world(program, options.ranks)
    request = fitting(program, read_ranks(data, program.collective), options.op, data, options.device)
    if found.selection is None:
        return request
    size_bytes = size_bytes_of(program.collective, request.count, request.inputs[0].dtype.itemsize)
    return replace(request, program=found.at(size_bytes).program, library=found.library(size_bytes))


def _refuse_crowding(request: RunRequest, *, here: bool) -> None:
    """Raise UnavailableError where this host lacks the memory to hand out the data and gather the results."""
    from exec.memory_demand import start_needs
    from exec.program import Layout
    from probes.live import refuse_crowding, rooms

    layout = Layout(request.program, request.count)
    found, host = rooms(), socket.gethostname()
    needs = start_needs(layout, request.inputs[0].dtype.itemsize, here=here)
    refuse_crowding([(host, found, need) for need in needs], request.program.collective.label)
