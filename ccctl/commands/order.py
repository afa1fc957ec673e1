"""`ccctl order`: the order of hosts, ranks and GPUs in which a library's own algorithms are fastest."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ccctl import console
from ccctl.arguments import Alpha, Bandwidth, Json, Quiet, Seed, Verbose, load_network, parse_size
from ccctl.artifacts import refuse_unwritable, write_atomically
from ccctl.completion import words
from ccctl.errors import UsageError

if TYPE_CHECKING:
    from synth.rank_order import RankOrder

__all__ = ["EXAMPLES", "order"]

EXAMPLES = (
    (
        "ccctl order profile.json --for openmpi --to hostfile -o hosts",
        "an order for Open MPI's ring; mpirun --hostfile hosts then starts the ranks in it",
    ),
    (
        "ccctl order links.csv --for mpich:rabenseifner --size 64M --json",
        "what MPICH's reduce_scatter and all_gather gain, and what any order could, as one object",
    ),
    (
        "ccctl order dgx-a100:4 --for nccl:tree --to torchrun",
        "the node rank of each host for torchrun",
    ),
    (
        "ccctl order system.xml --for nccl --to nccl-graph -o graph.xml",
        "the order of the GPUs inside a host for each channel; NCCL_GRAPH_FILE names the file",
    ),
)
_DEFAULT_SIZE = "16M"
_GRAPH = "nccl-graph"

NetworkArgument = Annotated[
    str,
    typer.Argument(
        metavar="NETWORK|PROFILE",
        autocompletion=words.networks,
        help="A profile, topology, links.csv, family or machine, as for ccctl synth.",
    ),
]
Library = Annotated[
    str,
    typer.Option(
        "--for",
        metavar="LIBRARY[:ALGORITHM]",
        autocompletion=words.one_of(*words.LIBRARY_ALGORITHMS),
        help="openmpi, mpich, gloo, nccl or rccl; with :ring (if not said), :recursive_doubling, "
        ":rabenseifner or :tree.",
    ),
]
Collective = Annotated[
    str,
    typer.Option(
        "--collective",
        metavar="NAME",
        autocompletion=words.one_of(*words.ORDERED_COLLECTIVES),
        help="all_reduce, all_gather or reduce_scatter.",
    ),
]
Size = Annotated[
    str | None,
    typer.Option(
        "--size", metavar="SIZE", help=f"Bytes of the buffer, as nccl-tests counts; {_DEFAULT_SIZE}."
    ),
]
To = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="FORMAT",
        autocompletion=words.one_of(*words.ORDER_FORMATS),
        help="Write hostfile, machinefile, rankfile, slurm, torchrun or kubernetes; or, for nccl and rccl, "
        "nccl-graph: the order of the GPUs inside a host, which NCCL_GRAPH_FILE names.",
    ),
]
Measured = Annotated[
    str | None,
    typer.Option(
        "--measured",
        metavar="PROFILE",
        help="With nccl-graph: by what this profile measured between GPUs. [by what links should carry]",
    ),
]
OneHost = Annotated[
    bool,
    typer.Option("--one-host", help="With nccl-graph: for jobs on one host, whose rings use no NIC."),
]
File = Annotated[
    str | None, typer.Option("-o", "--output", metavar="FILE", help="Where to; stdout if not said.")
]


def order(
    network: NetworkArgument,
    library: Library = "openmpi",
    collective: Collective = "all_reduce",
    size: Size = None,
    to: To = None,
    measured: Measured = None,
    one_host: OneHost = False,
    output: File = None,
    alpha: Alpha = None,
    bandwidth: Bandwidth = None,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Find the order of hosts and ranks that suits a library.

    Libraries do not see which links are slow: their rings and trees go by rank numbers. So ranks are
    numbered such that they fit. Up to 8 hosts with a rank each all orders are timed; in larger clusters a
    local search takes over, the same for the same seed. The output says the gain as predicted and what no
    order's gain is above. An order that would gain less than 2 % is left as it comes.

    NCCL and RCCL choose the order of the GPUs inside a host themselves. --to nccl-graph writes a file that
    sets another one: from a topology, the GPUs and the NIC of each channel, such that all channels together
    carry most.
    """
    from exec.launcher.starters import FORMATS

    known = (*FORMATS, _GRAPH)
    if to is not None and to not in known:
        from probes.base import meant

        raise UsageError(f"--to: expected one of {', '.join(known)}, found {to!r}", hint=meant(to, known))
    if output is not None and to is None:
        raise UsageError("-o: --to says in which format", hint=f"--to {'|'.join(known)}")
    if (measured is not None or one_host) and to != _GRAPH:
        raise UsageError("--measured and --one-host are for --to nccl-graph")
    if json and to is not None and output in (None, "-"):
        raise UsageError("--json and --to: one of them to stdout", hint="Add -o FILE.")
    if output not in (None, "-"):
        refuse_unwritable(Path(str(output)))
    if to == _GRAPH:
        from ccctl.summaries import nccl_graphs

        if library.partition(":")[0] not in ("nccl", "rccl"):
            raise UsageError(f"--to nccl-graph: only NCCL and RCCL read it, found --for {library}")
        nccl_graphs.write(network, measured, one_host=one_host, seed=seed, output=output, json=json)
        return
    found = _planned(network, alpha, bandwidth, library, collective, size, seed)
    if to is not None:
        _write(found, to, output)
    _tell(found, json=json, aside=to is not None and output in (None, "-"))


def _planned(
    network: str,
    alpha: str | None,
    bandwidth: str | None,
    library: str,
    word: str,
    size: str | None,
    seed: int,
) -> RankOrder:
    from synth.collective import kind_of
    from synth.rank_order import algorithm_of, plan_order

    algorithm = algorithm_of(library, kind_of(word))
    size_bytes = parse_size(size or _DEFAULT_SIZE, "--size")
    loaded, _ = load_network(network, alpha, bandwidth)
    return plan_order(loaded, algorithm, size_bytes, seed=seed)


def _write(found: RankOrder, to: str, output: str | None) -> None:
    from exec.launcher.starters import PlacedHost, keeps_slots, order_file

    index = {one.host: number for number, one in enumerate(found.before)}
    text = order_file([PlacedHost(one.host, one.slots, index[one.host]) for one in found.after], to)
    moved = any(one.slots != tuple(range(len(one.slots))) for one in found.after)
    if moved and not keeps_slots(to):
        console.doubt(f"a {to} file cannot say the order of the ranks in a host; --to rankfile can")
    if output in (None, "-"):
        console.raw(text.encode())
    else:
        write_atomically(Path(str(output)), text.encode())


def _tell(found: RankOrder, *, json: bool, aside: bool) -> None:
    """The summary; ``aside`` where stdout is for the file."""
    from ccctl.render.text import rank_order

    if json:
        console.summary(rank_order.summary(found))
        return
    rank_order.draw(found, say=console.note if aside else console.data)
    if not found.changed:
        console.note("the order stays as it comes")
