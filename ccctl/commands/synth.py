"""`ccctl synth`: the best schedule for a collective on a network, proven and bounded."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ccctl import console
from ccctl.arguments import (
    SynthOptions,
    has_groups,
    load_network,
    parse_collectives,
    read_groups,
    read_or_described,
    read_redistribution,
    refuse_given,
    refuse_unknown,
    topology_in,
    uneven_collective,
)
from ccctl.artifacts import codec, is_folder, made_folder, refuse_unwritable, write_atomically, write_output
from ccctl.completion import words
from ccctl.errors import UsageError
from ccctl.launching import HOSTS_VARIABLE, Drawn, World, placed, run_ranks, world_of
from ccctl.runs import RaceLauncher
from probes.base import parse_seconds, parse_size, parse_sizes

if TYPE_CHECKING:
    from synth import Request, Synthesis
    from synth.portfolio import Loaded, LoadedRange
    from synth.tacos_ilp import Mechanism

__all__ = ["EXAMPLES", "synth"]

EXAMPLES = (
    (
        "ccctl synth --network profile.json --collective all_reduce --size 16M -o schedule.json",
        "the best all_reduce of 16 MiB on the measured network",
    ),
    (
        "ccctl synth --network profile.json --collective broadcast --size 1M --race -o raced.json",
        "run the schedules that are predicted about equal on the profile's ranks, and keep the fastest",
    ),
    (
        "ccctl synth --network mesh:4x4 --bandwidth 50GiB/s --alpha 0.5us --collective all_gather --chunk 1M",
        "an all_gather on a 4×4 mesh, one chunk of 1 MiB a rank",
    ),
    (
        "ccctl synth --network topo.txt --collective AllReduce --size 16M",
        "on the machine that the text of nvidia-smi topo -m, or NCCL's XML, describes",
    ),
    (
        "ccctl synth --network rfs:2x4x4 --bandwidth 200,100,50GB/s --collective all_gather --size 32M"
        " -o - | ccctl verify -",
        "pipe a schedule into the judge",
    ),
    (
        "ccctl synth --network dgx-a100:2 --without rank:3,link:0-1 --collective all_to_all --size 64M",
        "two DGX A100 after a GPU and a link have failed: rank 3 keeps its number and takes no part",
    ),
    (
        "ccctl synth --network mesh:32x32 --bandwidth 50GB/s --alpha 0.5us --size 1G -o large.json",
        "1,024 ranks: a periodic schedule, as a list of all sends would be too long",
    ),
    (
        "ccctl synth --network torus:16x16x64 --bandwidth 50GB/s --alpha 0.5us --size 1G -o huge.json",
        "16,384 ranks: a symmetric schedule, which lists the sends of one chunk",
    ),
    (
        "ccctl synth --network dgx-a100:2 --sizes 1K:1G -f 32 -o table.json",
        "a sweep: the best all_reduce for each range of sizes, as a runtime would choose",
    ),
    (
        "ccctl synth --network dgx-a100:2 --size 64M --for msccl -o all_reduce.xml",
        "the fastest that MSCCL's interpreter can load, as the XML that it loads",
    ),
    (
        "ccctl synth --network profile.json --for nccl -o nccl",
        "what stock NCCL loads for the measured network, each file with its expected gain",
    ),
    (
        "ccctl synth --network dgx-a100:1 --sizes 64K:16M -f 16 --for mscclpp -o plans",
        "a folder of plans of MSCCL++, one for each range of sizes",
    ),
    (
        "ccctl synth --network mesh:6x6 --bandwidth 100GB/s"
        " --collective broadcast:0-17,reduce@20:18-29,all_gather:30-35 --chunk 1M",
        "three collectives at once, each on its own ranks",
    ),
    (
        "ccctl synth --network ring:4 --bandwidth 25GB/s --collective all_gather --counts 4M,0,1M,2M",
        "an uneven all_gather, MPI_Allgatherv: rank 1 gives nothing",
    ),
    (
        "ccctl synth --network dgx-h100:2 --size 16M --reproducible -o reproducible.json",
        "sums whose bits do not depend on network, size or schedule, and the price of that",
    ),
)


# The prefix of --collective before the name of a file of tensors and layouts.
_REDISTRIBUTE = "redistribute:"
# The smallest size is about a barrier's, the largest a whole model's gradients.
_STOCK_SIZES = "1K:4G"


def synth(options: SynthOptions) -> None:
    """Synthesize a schedule: which rank sends what to which, and when.

    Tries every method that suits the network, keeps the fastest by simulation, proves it with an independent
    checker, and prints how far it is from the largest proven lower bound, and what this bound follows from:
    ingress or egress of a rank, a cut or partition between hosts or racks, or total traffic, the bytes of
    all sends over the rates of all links. It holds where ranks make the sums; switches that make them (NVLink
    SHARP, SHARP) can be faster, and may on a network such as dgx-h100+nvls:2. With --sizes it times every
    candidate at every size and writes a selection: which schedule to use from which size on. With --race,
    schedules that are predicted about equal run in turn on ranks, with real data, and the fastest is kept.

    A large all_reduce for which a list of all sends would be too long, such as 1G on mesh:32x32, becomes a
    periodic schedule: its file holds only one part of the sends, which repeats, and how often. --method
    periodic makes one wherever that is possible.

    On a network with equal parts (tori, switches, fat trees, dragonflies, machines such as dgx-h100:512), an
    all_gather, reduce_scatter, all_reduce or all_to_all can be symmetric. Up to a thousand ranks this is one
    of the methods, and all sends are listed. On more ranks it becomes a symmetric schedule: its file holds
    the sends of a few chunks, and those of the others are the same with other rank numbers. --method
    symmetric makes one on any such network, and on a list of links with such symmetry. With --without, an
    all_reduce on such machines becomes a periodic schedule around the failures.

    With --for the fastest schedule within the limits of a runtime (threadblocks, steps, channels, what can be
    proven of a plan) is found, compiled and proven by the runtime's rules, and the output is the file that it
    loads. It is timed by the runtime's own costs, in up to 8 instances and, for MSCCL and RCCL, with each
    protocol. The GPUs of a machine that --network names limit the threadblocks. If --sizes is given, too, the
    output is a folder with a file for each range of sizes. Each file states its range, and the last lines are
    the environment in which the runtime finds the files.

    --for nccl is for the unmodified library, which loads no schedules: it writes the order of hosts, graph
    files for hosts whose links are uneven (with a topology), a tuner file where another algorithm or protocol
    is faster than NCCL's choice on the measured links, and the environment, each with its expected gain. If
    NCCL's own choices are as good, nothing is written.

    A --collective file of groups, each with its ranks, size and release, plans the groups of a training step
    together; a folder of Chakra traces, one for each rank, names them, too. It prints the time of each group
    alone, beside the others, and planned together, and the time that 1 GB/s more on a link, NIC or trunk
    would save. -o then names a folder with a schedule for each group. redistribute:FILE moves tensors from
    one layout of ranks to another.

    With --reproducible each element is summed in one order, that of a balanced binary tree over the ranks by
    number. So the same data gives the same bits at any size, on any network of as many ranks, around any
    failed link. The schedule states the order, the checker proves it, and the price is printed: the time over
    that of the best schedule in any order, and the least that any schedule in this order can take.

    With --hosts or --hostfile their slots search over MPI, while one more process on the first host hands out
    the work. The schedule does not depend on the number of slots, or of --jobs here. If a host is lost, the
    command ends.
    """
    from synth import makes_attempts

    if options.runtime == "nccl":
        _for_stock_nccl(options)
        return
    if not options.collective.startswith(_REDISTRIBUTE) and has_groups(options.collective):
        _plan_step(options)
        return
    _refuse_output(options)
    searching = _searching(options) if not options.race else None
    request, digests = _request(options)
    attempts = makes_attempts(request)
    if searching is not None and attempts:
        label = "sweep" if request.sizes else "synth"
        world, limit_s = searching.with_manager(), options.timeout
        found = run_ranks("exec.search.task:search_task", request, world, label=label, timeout_s=limit_s)
    else:
        hosts = options.hosts or os.environ.get(HOSTS_VARIABLE)
        world = world_of(None, hosts, options.hostfile)
        launcher = RaceLauncher.of(request.network, world, options.timeout) if options.race else None
        found = _found(request, launcher, attempts)
    if searching is not None and not attempts:
        console.note("the hosts had nothing to do: one process finds such a schedule")
    _tell(found, request, options.output, options.json, digests)


def _plan_step(options: SynthOptions) -> None:
    """Plan the groups of the file that --collective names."""
    from ccctl.render.text import step as text
    from synth.side_by_side import side_by_side

    network, digests = load_network(
        options.network, options.alpha, options.bandwidth, unwind=options.unwind, topology=options.topology
    )
    groups = read_groups(options.collective, network)
    others = {
        "ranks": options.ranks,
        "counts": options.counts,
        "for": options.runtime,
        "chunk": options.chunk,
    }
    _refuse_sizes(options, "each group of the file has its own", **others)
    if options.output == "-":
        raise UsageError("-o -: each group has a schedule of its own", hint="Name a folder: -o step.")
    with console.progress("synth", 1.0) as bar:
        found = side_by_side(network, groups, seed=options.seed, progress=Drawn(bar))
    if options.output is not None:
        folder = made_folder(options.output)
        for number, schedule in enumerate(found.schedules):
            codec.write(str(folder / f"group-{number}.json"), "schedule", schedule, digests)
    if options.json:
        console.summary(text.summary(found))
    else:
        text.draw(found)


def _for_stock_nccl(options: SynthOptions) -> None:
    """Write what stock NCCL loads into a folder, each file with its expected gain; raises UsageError."""
    from ccctl.render.text import stock_nccl as text
    from exec.library_rules import plan_stock

    given = {"--size": options.size, "--chunk": options.chunk, "--race": options.race or None}
    refuse_given(given, "leave it out with --for nccl, which plans for a range of --sizes")
    if options.output == "-":
        raise UsageError("-o -: NCCL loads several files", hint="Name a folder: -o nccl.")
    network, digests = load_network(options.network, options.alpha, options.bandwidth)
    machine = topology_in(options.network)
    if options.topology is not None:
        machine = read_or_described(options.topology, "topology").body
        # Measured links also get the ports of the topology; other networks have ports of their own.
        if "profile" in digests:
            network, _ = load_network(options.network, None, None, topology=options.topology)
    sizes = _sizes(options.sizes or _STOCK_SIZES, options.factor if options.sizes else 4.0)
    folder = Path(options.output or "nccl").absolute()
    plan = plan_stock(network, machine, sizes, str(folder), spec=options.network, seed=options.seed)
    if options.output is not None and plan.files:
        folder.mkdir(parents=True, exist_ok=True)
        for file in plan.files:
            write_atomically(folder / file.name, file.content)
    if options.json:
        console.summary(text.summary(plan))
    else:
        text.draw(plan)
    if options.output is not None and not plan.files:
        console.note(f"{options.output}: nothing to load, so nothing is written there")


def _refuse_output(options: SynthOptions) -> None:
    """Raise UsageError, before a long search, for an output that cannot hold what will be found."""
    swept = options.sizes is not None and options.runtime is not None
    if swept and options.output == "-":
        raise UsageError(
            "-o -: a sweep for a runtime is a file for each range", hint="Name a folder: -o files."
        )
    if options.output not in (None, "-") and not (swept and is_folder(options.output)):
        refuse_unwritable(Path(options.output))


def _request(options: SynthOptions) -> tuple[Request, dict[str, str]]:
    """Return (request of the options, digests of its network's artifacts); raises UsageError."""
    from synth import Request
    from synth.networks import failures_of
    from synth.portfolio import cores, method_of

    console.waiting("synth: reading the network")
    network, digests = load_network(
        options.network,
        options.alpha,
        options.bandwidth,
        hold_alpha=options.hold_alpha,
        unwind=options.unwind,
        topology=options.topology,
    )
    method = method_of(options.method)
    redistributed = options.collective.startswith(_REDISTRIBUTE)
    collectives = (
        ()
        if redistributed
        else parse_collectives(options.collective, network.ranks, members=options.ranks, root=options.root)
    )
    size_bytes = None if options.size is None else parse_size(options.size, "--size")
    chunk_bytes = None if options.chunk is None else parse_size(options.chunk, "--chunk")
    if redistributed:
        _refuse_sizes(options, "the file already says what moves", counts=options.counts, ranks=options.ranks)
        blocks = read_redistribution(options.collective.removeprefix(_REDISTRIBUTE), network.ranks)
        one, size_bytes = blocks.request(chunk_bytes)
        collectives, chunk_bytes = (one,), None
    if options.counts is not None:
        _refuse_sizes(options, "--counts already says how large each block is")
        collectives, size_bytes = uneven_collective(collectives, options.counts, network.ranks, chunk_bytes)
        chunk_bytes = None
    step = options.time_step
    request = Request(
        network=network,
        kind=collectives[0].kind,
        collectives=collectives,
        size_bytes=size_bytes,
        chunk_bytes=chunk_bytes,
        chunks=options.chunks,
        sizes=() if options.sizes is None else _sizes(options.sizes, options.factor),
        without=None if options.without is None else failures_of(options.without, network),
        method=method,
        seed=options.seed,
        time_limit_s=options.time_limit,
        solver=options.solver,
        jobs=options.jobs or cores(),
        sub_collectives=options.sub_collectives,
        time_step_s=None if step is None else parse_seconds(step, "--time-step", positive=True),
        mechanism=_mechanism(options.mechanism, method),
        runtime=options.runtime or "",
        reproducible=options.reproducible,
    )
    return request, digests


def _refuse_sizes(options: SynthOptions, why: str, **others: str | None) -> None:
    """Raise UsageError for an option that has no meaning where blocks have sizes of their own."""
    sizes = {"--size": options.size, "--sizes": options.sizes, "--chunks": options.chunks}
    refuse_given({**sizes, **{f"--{name}": value for name, value in others.items()}}, why)


def _found(request: Request, launcher: RaceLauncher | None, attempts: bool) -> Synthesis:
    """Synthesize in this process; with ``attempts`` to make, first load or compile the loops."""
    from synth import synthesize
    from synth.portfolio import warm

    network = request.network
    if attempts:
        size_of = f"{network.ranks} ranks, {network.links} links"
        console.waiting(f"synth: {size_of}; preparing the hot loops")
        console.detail(f"{size_of}; preparing the hot loops")
        warm(network.ranks)
    with ExitStack() as drawn:
        bar = Drawn(drawn.enter_context(console.progress("sweep" if request.sizes else "synth", 1.0)))
        race = None if launcher is None else replace(launcher, begin=drawn.close)
        return synthesize(request, race=race, progress=bar)


def _searching(options: SynthOptions) -> World | None:
    """Return the hosts of --hosts or --hostfile; None if this process searches; raises UsageError.

    Hosts from CCCTL_HOSTS or a Slurm job are not used for a search, only for work that has to run on them.
    """
    if options.hosts is None and options.hostfile is None:
        return None
    if options.jobs is not None:
        raise UsageError(
            "--jobs says how many processes of this machine make attempts, and the slots of the hosts how "
            "many there: leave one out"
        )
    world = World(None, options.hosts, options.hostfile)
    placed(world)
    return world


def _mechanism(name: str | None, method: str) -> Mechanism:
    """Return the mechanism of TACOS-ILP with this name, "auto" for None.

    Raises UsageError for an unknown name, and for any name if the method is not "ilp".
    """
    if name is None:
        return "auto"
    if method != "ilp":
        raise UsageError("--mechanism: only TACOS's integer programs have one", hint="Add --method ilp.")
    refuse_unknown("--mechanism", name, words.MECHANISMS)
    return name  # type: ignore[return-value] # one of the mechanisms


def _sizes(text: str, factor: float) -> tuple[int, ...]:
    from synth.portfolio import sizes_between

    return sizes_between(*parse_sizes(text, "--sizes"), factor)


def _tell(
    found: Synthesis, request: Request, output: str | None, json: bool, digests: dict[str, str]
) -> None:
    """Write the artifact where ``output`` says, and print what was found."""
    from ccctl.render.text import loaded, synthesis

    if found.ranges:
        _write_ranges(found, output)
        if json:
            console.summary(loaded.summary(found, request.runtime, output))
        else:
            loaded.draw(found, request.runtime, output, console.data if output is None else console.note)
        kind = "json" if request.runtime == "mscclpp" else "xml"
        first = loaded.file_of(found.ranges[0])
        console.next_with(output, f"ccctl verify {{}}/{first}", f"{kind}s")
        return
    if found.loaded is not None:
        from synth.msccl import doubts

        program = found.loaded.program
        for doubt in doubts(program, request.runtime) if program is not None else ():
            console.doubt(doubt)
    if output is not None and found.loaded is not None:
        write_output(output, _loadable(found.loaded))
    elif output is not None:
        codec.write(output, codec.kind_of(found.schedule), found.schedule, digests)
    if json and output != "-":
        console.summary(synthesis.summary(found, request.seed))
    else:
        synthesis.draw(found, console.data if output is None else console.note)
        if output not in (None, "-") and found.loaded is not None:
            _say_environment(Path(str(output)).resolve(), request.runtime)
    if request.sizes:
        console.next_with(output, "ccctl show {}", "table.json")
    elif found.loaded is not None:
        console.next_with(output, "ccctl verify {}", "plan.json" if found.loaded.plan else "program.xml")
    else:
        console.next_with(output, "ccctl verify {}", "schedule.json")


def _write_ranges(found: Synthesis, output: str | None) -> None:
    """Write the file of each range of sizes into the folder ``output``; without it only compile them.

    Nothing else is written there: Azure's MSCCL, RCCL and MSCCL++ read every file of the folder.
    """
    from ccctl.render.text import loaded

    if output is None:
        return
    folder = made_folder(output)
    names = [loaded.file_of(one) for one in found.ranges]
    for one, name in zip(found.ranges, names, strict=True):
        write_atomically(folder / name, _loadable(one))
    _warn_of_others(folder, names)


def _say_environment(path: Path, runtime: str) -> None:
    """Print the environment in which the runtime finds one file."""
    from ccctl.render.text import loaded

    for line in loaded.exports([path], runtime):
        console.note(line)
    _warn_of_others(path.parent, [path.name])


def _warn_of_others(folder: Path, names: Sequence[str]) -> None:
    others = sorted(each.name for each in folder.iterdir() if each.name not in names)
    if others:
        console.warn(
            f"{folder}: the runtime may read every file of this folder, also {others[0]}: write to a folder "
            "of its own"
        )


def _loadable(loaded: Loaded | LoadedRange) -> bytes:
    """Return the file that the runtime loads."""
    from synth.msccl import write_xml
    from synth.mscclpp import write_plan

    if loaded.plan is not None:
        return write_plan(loaded.plan)
    assert loaded.program is not None
    return write_xml(loaded.program)
