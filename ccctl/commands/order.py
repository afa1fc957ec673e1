"""`ccctl order`: the order of hosts, ranks and GPUs in which a library's own algorithms are fastest."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ccctl import console
from ccctl.arguments import FamilyOptions, GeneralOptions, Seed, load_network, refuse_unknown, written_option
from ccctl.artifacts import codec, exists, write_output
from ccctl.completion import words
from ccctl.errors import UsageError
from probes.base import parse_size, plural

if TYPE_CHECKING:
    from probes.link_costs import Profile
    from synth.rank_order import RankOrder

__all__ = ["EXAMPLES", "order"]

EXAMPLES = (
    (
        "ccctl order profile.json --for openmpi --to hostfile -o hosts",
        "an order for Open MPI's ring; mpirun --hostfile hosts then starts the ranks in it",
    ),
    (
        "ccctl order links.csv --for mpich:rabenseifner --size 64M --json",
        "what an order gains for Rabenseifner's algorithm, and the most that any order could, as one object",
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
_GRAPH = "nccl-graph"
# Command lines that read each format; PROGRAM stands for the user's own.
_STARTS = {
    "hostfile": "mpirun --hostfile {} PROGRAM",
    "rankfile": "mpirun --map-by rankfile:file={} PROGRAM",
    "machinefile": "mpiexec -f {} PROGRAM",
    "slurm": "SLURM_HOSTFILE={} srun --distribution=arbitrary PROGRAM",
    "torchrun": "torchrun with the arguments of the host's line in {}, on each host",
    "kubernetes": "torchrun --node-rank=$(cut -d, -f$((JOB_COMPLETION_INDEX + 1)) {}), in each pod",
}


@dataclass(frozen=True)
class OrderOptions(GeneralOptions, FamilyOptions):
    """The arguments and options of ``order``."""

    network: Annotated[
        str,
        typer.Argument(
            metavar="NETWORK|PROFILE",
            autocompletion=words.networks,
            help="The network: a profile, topology, links.csv, or name, as for ccctl synth; a family such as "
            "fat_tree:4x2 needs --bandwidth.",
        ),
    ]
    library: Annotated[
        str,
        typer.Option(
            "--for",
            metavar="LIBRARY[:ALGORITHM]",
            autocompletion=words.one_of(*words.LIBRARY_ALGORITHMS),
            help="openmpi, mpich, gloo, nccl or rccl; then :ring (the default), "
            ":recursive_doubling, :rabenseifner or :tree.",
        ),
    ] = "openmpi"
    collective: Annotated[
        str,
        typer.Option(
            "--collective",
            metavar="NAME",
            autocompletion=words.one_of(*words.ORDERED_COLLECTIVES),
            help="all_reduce, all_gather or reduce_scatter.",
        ),
    ] = "all_reduce"
    size: Annotated[
        str, typer.Option("--size", metavar="SIZE", help="Size of the buffer, as nccl-tests counts it.")
    ] = "16M"
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="FORMAT",
            autocompletion=words.one_of(*words.ORDER_FORMATS),
            help="File to write: hostfile, machinefile, rankfile, slurm, torchrun or kubernetes; "
            "for nccl and rccl also nccl-graph, the order of the GPUs inside a host, for "
            "NCCL_GRAPH_FILE.",
        ),
    ] = None
    measured: Annotated[
        str | None,
        typer.Option(
            "--measured",
            metavar="PROFILE",
            help="With nccl-graph: use the bandwidths between GPUs of this profile. [nominal bandwidths]",
        ),
    ] = None
    one_host: Annotated[
        bool,
        typer.Option(
            "--one-host", help="With nccl-graph: plan for jobs on one host, whose rings use no NIC."
        ),
    ] = False
    output: Annotated[str | None, written_option("-o", "--output", help="File to write. [stdout]")] = None
    seed: Seed = 0


def order(options: OrderOptions) -> None:
    """Find the order of hosts and ranks that suits a library.

    The rings and trees of libraries follow rank numbers and ignore which links are slow. This command numbers
    the ranks so that they fit the network. Up to 8 hosts with a rank each it times all orders; larger
    clusters are searched, with the same result for the same seed. The output gives the predicted gain, and a
    limit that no order's gain exceeds. An order that would gain less than 2 % is not changed.

    NCCL and RCCL choose the order of GPUs inside a host themselves. --to nccl-graph reads a topology and
    writes a file that sets the order of the GPUs and the NIC of each channel, so that all channels together
    carry the most.
    """
    from exec.launcher.starters import FORMATS

    known = (*FORMATS, _GRAPH)
    if options.to is not None:
        refuse_unknown("--to", options.to, known)
    if options.output is not None and options.to is None:
        raise UsageError("-o: the format is missing, which --to names", hint=f"--to {'|'.join(known)}")
    if (options.measured is not None or options.one_host) and options.to != _GRAPH:
        raise UsageError("--measured and --one-host are for --to nccl-graph")
    if options.json and options.to is not None and options.output in (None, "-"):
        raise UsageError("--json and --to: one of them to stdout", hint="Add -o FILE.")
    if options.to == _GRAPH:
        if options.library.partition(":")[0] not in ("nccl", "rccl"):
            raise UsageError(f"--to nccl-graph: only NCCL and RCCL read it, found --for {options.library}")
        _write_graphs(options)
        return
    found, crowded = _planned(options)
    if options.to is not None:
        _write(found, options.to, options.output, crowded)
        if options.output not in (None, "-") and not options.json:
            start = _STARTS[options.to].format(options.output)
            if found.changed:
                console.note(f"to start the ranks in this order: {start}")
            else:
                console.note(f"nothing to gain: {options.output} has the order given ({start})")
    _tell(found, json=options.json, aside=options.to is not None and options.output in (None, "-"))


def _planned(options: OrderOptions) -> tuple[RankOrder, dict[str, int]]:
    """Return (the order, the cores of each host whose ranks outnumber them by the profile)."""
    from synth.collective import kind_of
    from synth.rank_order import algorithm_of, plan_order

    algorithm = algorithm_of(options.library, kind_of(options.collective))
    size_bytes = parse_size(options.size, "--size")
    loaded, digests = load_network(options.network, options.alpha, options.bandwidth)
    crowded: dict[str, int] = {}
    if "profile" in digests and options.network != "-":
        crowded = codec.read(options.network, "profile").body.crowded_hosts
    return plan_order(loaded, algorithm, size_bytes, seed=options.seed), crowded


def _write(found: RankOrder, to: str, output: str | None, crowded: dict[str, int]) -> None:
    """Write the order; raises UsageError if a format needs a core for each rank and a host has too few."""
    from exec.launcher.starters import PlacedHost, keeps_slots, order_file

    index = {one.host: number for number, one in enumerate(found.before)}
    text = order_file([PlacedHost(one.host, one.slots, index[one.host]) for one in found.after], to)
    if crowded and keeps_slots(to):
        host, cores = next(iter(crowded.items()))
        ranks = sum(len(one.ranks) for one in found.after if one.host == host)
        raise UsageError(
            f"--to {to}: it gives each rank a core of its own, and {host} has {plural(cores, 'core')} for "
            f"{plural(ranks, 'rank')}",
            hint="--to hostfile names the hosts only.",
        )
    moved = any(one.slots != tuple(range(len(one.slots))) for one in found.after)
    if moved and not keeps_slots(to):
        console.doubt(f"a {to} file cannot say the order of the ranks in a host; --to rankfile can")
    write_output(output, text.encode())


def _write_graphs(options: OrderOptions) -> None:
    """Write a graph file for each kind of host, and print the bandwidth of its channels.

    With a measured profile, every host is a kind of its own. Raises DataError. Raises UsageError if the
    network is not a file, or if several graph files are needed and -o names none.
    """
    from ccctl.arguments import read_or_described
    from ccctl.render.text import nccl_graphs as text
    from synth.nccl_graphs import graph_file, plan_kinds

    network, profile = options.network, options.measured
    if network != "-" and not exists(network):
        raise UsageError(
            f"{network}: --to nccl-graph needs a file that says what is inside a host",
            hint="Run ccctl detect -o topology.json on the host, or give what NCCL_TOPO_DUMP_FILE wrote.",
        )
    topology = read_or_described(network, "topology").body
    measured: Profile | None = codec.read(profile, "profile").body if profile is not None else None
    kinds = plan_kinds(topology, measured, between_hosts=not options.one_host, seed=options.seed)
    if len(kinds) > 1 and options.output in (None, "-"):
        raise UsageError(
            f"{network}: {len(topology.hosts)} hosts of {plural(len(kinds), 'kind')} need a file each",
            hint="-o graph.xml writes graph.HOST.xml for the first host of each kind.",
        )
    summaries = []
    for kind in kinds:
        graphs, names = kind.graphs, list(kind.names)
        unmeasured = f"{profile}: nothing was measured between GPUs of {graphs.host}; nominal rates count"
        for doubt in (*graphs.doubts, *([unmeasured] if kind.unmeasured else ())):
            console.doubt(doubt)
        path = _graph_path(options.output, graphs.host, several=len(kinds) > 1)
        write_output(path, graph_file(graphs))
        summaries.append(text.summary(graphs, names, path))
        if not options.json:
            text.draw(graphs, names, path)
    if options.json:
        console.summary({"hosts": summaries})


def _graph_path(output: str | None, host: str, *, several: bool) -> str | None:
    if output in (None, "-"):
        return None
    path = Path(str(output))
    return str(path.with_name(f"{path.stem}.{host}{path.suffix}") if several else path)


def _tell(found: RankOrder, *, json: bool, aside: bool) -> None:
    """Print the summary; with ``aside`` as notes, because stdout then holds the file."""
    from ccctl.render.text import rank_order

    if json:
        console.summary(rank_order.summary(found))
        return
    rank_order.draw(found, say=console.note if aside else console.data)
