"""`ccctl synth`: the best schedule for a collective on a network, proven and bounded."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from ccctl import console
from ccctl.arguments import (
    Alpha,
    Bandwidth,
    Chunk,
    Chunks,
    CollectiveName,
    DeclaredTopology,
    Factor,
    HoldAlpha,
    Hostfile,
    Jobs,
    Json,
    MechanismName,
    Members,
    Method,
    NetworkName,
    Output,
    Quiet,
    RaceOption,
    Root,
    SearchHosts,
    Seed,
    Size,
    Solver,
    SubCollectives,
    Sweep,
    TimeLimit,
    TimeoutSeconds,
    TimeStep,
    Unwind,
    Verbose,
    Without,
    load_network,
    load_symmetric,
    parse_collectives,
    parse_failures,
    parse_seconds,
    parse_size,
    parse_sizes,
)
from ccctl.artifacts import codec
from ccctl.completion import words
from ccctl.errors import UsageError
from ccctl.launching import HOSTS_VARIABLE, Drawn, World, placed, run_ranks, world_of
from ccctl.runs import RaceLauncher
from ccctl.summaries import describe, synth as summaries

if TYPE_CHECKING:
    from synth.network import Network
    from synth.networks import SymmetricNetwork
    from synth.portfolio import CollectiveRequest, PeriodicSynthesis, Request, Swept, Synthesis
    from synth.portfolio.symmetry import SymmetricSynthesis
    from synth.schedule import Schedule
    from synth.tacos_ilp import Mechanism

__all__ = ["EXAMPLES", "synth"]

EXAMPLES = (
    (
        "ccctl synth --network profile.json --collective all_reduce --size 16M -o schedule.json",
        "the best all_reduce of 16 MiB on the measured network",
    ),
    (
        "ccctl synth --network profile.json --collective broadcast --size 1M --race -o raced.json",
        "run what predictions cannot tell apart on the ranks of the profile, and keep the fastest",
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
        "on 1,024 ranks no table fills the pipelines of 1 GiB: a periodic schedule does",
    ),
    (
        "ccctl synth --network torus:16x16x64 --bandwidth 50GB/s --alpha 0.5us --size 1G -o huge.json",
        "16,384 ranks: the sends of one chunk stand for all their translates",
    ),
    (
        "ccctl synth --network dgx-a100:2 --sizes 1K:1G -f 4 -o table.json",
        "a sweep: the best all_reduce for each range of sizes, as a runtime would choose",
    ),
    (
        "ccctl synth --network mesh:6x6 --bandwidth 100GB/s"
        " --collective broadcast:0-17,reduce@20:18-29,all_gather:30-35 --chunk 1M",
        "three collectives at once, each on its own ranks",
    ),
)


def synth(
    network: NetworkName,
    collective: CollectiveName = "all_reduce",
    alpha: Alpha = None,
    bandwidth: Bandwidth = None,
    unwind: Unwind = None,
    topology: DeclaredTopology = None,
    without: Without = None,
    ranks: Members = None,
    size: Size = None,
    sizes: Sweep = None,
    factor: Factor = 2.0,
    chunk: Chunk = None,
    chunks: Chunks = None,
    root: Root = None,
    method: Method = "auto",
    time_limit: TimeLimit = None,
    jobs: Jobs = None,
    solver: Solver = "cbc",
    sub_collectives: SubCollectives = None,
    time_step: TimeStep = None,
    mechanism: MechanismName = None,
    hold_alpha: HoldAlpha = False,
    seed: Seed = 0,
    race: RaceOption = False,
    hosts: SearchHosts = None,
    hostfile: Hostfile = None,
    timeout: TimeoutSeconds = None,
    json: Json = False,
    output: Output = None,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Synthesize a schedule: who sends which chunk to whom when.

    Tries every method, keeps the fastest by simulation, proves it with an independent checker and
    says how far it is from the largest proven lower bound. With --sizes every candidate is timed at every
    size, and the artifact is a selection: which schedule to take from which size on. With --race those that
    the prediction cannot tell apart run in turn on ranks, with real data, and the fastest is kept.

    An all_reduce whose pipelines no table of sends could fill, as of 1G on mesh:32x32, becomes a periodic
    schedule: the sends of one period, and how often they are repeated. --method periodic makes one wherever
    that is possible.

    With --hosts or --hostfile each of their slots makes attempts, over MPI, and one process more on the
    first host hands them out. The schedule is the same whatever the number of slots, or of --jobs here. A
    host that is lost ends the command.

    On more than a thousand ranks of a network whose parts are all alike (tori, switches, fat trees,
    dragonflies, machines such as dgx-h100:512), an all_gather, reduce_scatter, all_reduce or all_to_all
    becomes a symmetric schedule: it lists the sends of one chunk of each kind, and all others follow from
    them by moving ranks. --method symmetric makes one on any such network, and on a list of links that has
    such translations. With --without, an all_reduce on such machines becomes a periodic schedule around the
    failures.
    """
    from synth.portfolio import cores, warm

    method = _method(method)
    for option, given in (("--race", race), ("--sizes", sizes), ("--without", without), ("--ranks", ranks)):
        if given and method == "symmetric":
            raise UsageError(
                f"{option}: symmetric schedules are for all ranks and one size, and not raced; leave it out"
            )
    searching = _searching(hosts, hostfile, jobs) if not race else None
    console.waiting("synth: reading the network")
    if method in ("auto", "symmetric") and not (race or sizes or ranks or topology):
        folded = load_symmetric(
            network, alpha, bandwidth, hold_alpha=hold_alpha, unwind=unwind, listed=method == "symmetric"
        )
        cut = (size, chunk, chunks)
        if without:
            made = _around_failures(folded, collective, without, cut, seed, output, json)
        else:
            made = _symmetric(folded, network, collective, method, cut, seed, output, json)
        if made:
            if searching is not None:
                console.note("the hosts had nothing to do: one process finds such a schedule")
            return
    loaded, digests = load_network(
        network,
        alpha,
        bandwidth,
        hold_alpha=hold_alpha,
        unwind=unwind,
        failed=without,
        topology=topology,
    )
    collectives = _collectives(loaded, collective, ranks, root, without)
    if sizes is not None and (size is not None or chunk is not None):
        raise UsageError("--sizes sweeps over sizes and chooses chunks; leave out --size and --chunk")
    if method == "periodic" and (race or sizes is not None):
        option = "--race" if race else "--sizes"
        raise UsageError(f"{option}: periodic schedules are made for one size, and not raced; leave it out")
    swept = _sizes(sizes, factor) if sizes is not None else ()
    request = _request(loaded, collectives, size, chunk, chunks, method, seed)
    request = replace(
        request,
        time_limit_s=time_limit,
        solver=solver,
        jobs=jobs or cores(),
        sub_collectives=sub_collectives,
        time_step_s=_step_s(time_step),
        mechanism=_mechanism(mechanism, method),
    )
    if searching is not None:
        _on_hosts(request, swept, searching, timeout, output, json, digests)
        return
    hosts = hosts or os.environ.get(HOSTS_VARIABLE)
    course = RaceLauncher.of(loaded, world_of(None, hosts, hostfile), timeout) if race else None
    size_of = f"{request.network.ranks} ranks, {request.network.links} links"
    console.waiting(f"synth: {size_of}; preparing the hot loops")
    console.detail(f"{size_of}; preparing the hot loops")
    warm(request.network.ranks)
    if swept:
        _sweep(request, swept, course, output, json, digests)
    else:
        _once(request, course, output, json, digests)


def _searching(hosts: str | None, hostfile: str | None, jobs: int | None) -> World | None:
    """The hosts that are to make the attempts, None for this one; raises UsageError.

    Hosts of the environment or of a job of Slurm are taken only for what has to run on them.
    """
    if hosts is None and hostfile is None:
        return None
    if jobs is not None:
        raise UsageError(
            "--jobs says how many processes of this machine make attempts, and the slots of the hosts how "
            "many there: leave one out"
        )
    world = World(None, hosts, hostfile)
    placed(world)
    return world


def _on_hosts(
    request: Request,
    sizes: tuple[int, ...],
    world: World,
    timeout_s: float | None,
    output: str | None,
    json: bool,
    digests: dict[str, str],
) -> None:
    """Have the ranks of ``world`` make the attempts, and one more hand them out; tell what was found."""
    from exec.search import SearchTask
    from synth.portfolio import Swept

    search = SearchTask(request, sizes)
    found = run_ranks(
        "exec.search.task:search_task",
        search,
        world.with_manager(),
        label="sweep" if sizes else "synth",
        timeout_s=timeout_s,
    )
    if isinstance(found, Swept):
        _tell_swept(found, request, output, json, digests)
    else:
        _tell_found(found, output, json, digests)


def _method(word: str) -> str:
    """The method, auto or periodic that a word means; raises UsageError for none."""
    from synth.portfolio import method_of

    return "periodic" if word.lower() == "periodic" else method_of(word)


def _mechanism(name: str | None, method: str) -> Mechanism:
    """The mechanism of TACOS-ILP with this name, "auto" for None; raises UsageError with another method."""
    if name is None:
        return "auto"
    if method != "ilp":
        raise UsageError("--mechanism: only TACOS's integer programs have one", hint="Add --method ilp.")
    if name == "early-termination":
        return "early-termination"
    if name == "time-clustering":
        return "time-clustering"
    raise UsageError(f"--mechanism: expected {' or '.join(words.MECHANISMS)}, found {name!r}")


def _symmetric(
    network: SymmetricNetwork | None,
    spec: str,
    collective: str,
    method: str,
    cut: tuple[str | None, str | None, int | None],
    seed: int,
    output: str | None,
    json: bool,
) -> bool:
    """Make a symmetric schedule where it is asked for, or where a table of all sends would be too large.

    Returns whether one was made; raises UsageError where one is asked for and cannot be.
    """
    from synth.portfolio.symmetry import SymmetricRequest, is_large, synthesize_symmetric

    if network is None:
        if method == "symmetric":
            raise UsageError(
                f"--method symmetric: no translation carries {spec} into itself",
                hint="Tori, switches, fat trees, dragonflies and machines such as dgx-a100:4 have some, and "
                "link lists whose ranks are numbered regularly.",
            )
        return False
    asked = parse_collectives(collective, network.ranks, members=None, root=None, failed=())
    if method == "auto" and not (
        len(asked) == 1 and not asked[0].members and is_large(network, asked[0].kind)
    ):
        return False
    if len(asked) > 1 or asked[0].members or asked[0].sets:
        raise UsageError("--method symmetric: expected one collective, of all ranks")
    size, chunk, chunks = cut
    _refuse_cuts(size, chunk, chunks)
    if method == "auto":
        console.note(
            f"{network.ranks} ranks: one chunk is scheduled for all {network.translations} of its kind"
        )
    request = SymmetricRequest(
        network,
        asked[0].kind,
        parse_size(size or "16M", "--size") if chunk is None else None,
        parse_size(chunk, "--chunk") if chunk is not None else None,
        chunks,
        seed,
    )
    with console.progress("synth", 1.0) as bar:
        found = synthesize_symmetric(request, Drawn(bar))
    _tell(found, "symmetric", output, json, {})
    return True


def _around_failures(
    network: SymmetricNetwork | None,
    collective: str,
    without: str,
    cut: tuple[str | None, str | None, int | None],
    seed: int,
    output: str | None,
    json: bool,
) -> bool:
    """Make an all_reduce of the ranks that failures leave, where there are too many links to list.

    Returns whether one was made.
    """
    from synth.portfolio.symmetry import serves_failures, synthesize_with_failures

    size, chunk, chunks = cut
    if network is None or chunk is not None or chunks is not None:
        return False
    asked = parse_collectives(collective, network.ranks, members=None, root=None, failed=())
    if len(asked) > 1 or asked[0].members or not serves_failures(network, asked[0].kind):
        return False
    failures = parse_failures(without, network)
    with console.progress("synth", 1.0):
        found = synthesize_with_failures(network, failures, parse_size(size or "16M", "--size"), seed)
    _tell(found, "periodic", output, json, {})
    return True


def _step_s(text: str | None) -> float | None:
    if text is None:
        return None
    if (step_s := parse_seconds(text, "--time-step")) <= 0:
        raise UsageError(f"--time-step: expected a time above 0, found {text}")
    return step_s


def _sizes(text: str, factor: float) -> tuple[int, ...]:
    from synth.portfolio import sizes_between

    return sizes_between(*parse_sizes(text, "--sizes"), factor)


def _sweep(
    request: Request,
    sizes: tuple[int, ...],
    course: RaceLauncher | None,
    output: str | None,
    json: bool,
    digests: dict[str, str],
) -> None:
    from synth.portfolio import candidates_of, sweep

    with console.progress("sweep", 1.0) as bar:
        if course is None:
            found = sweep(request, sizes, Drawn(bar))
        else:
            candidates = candidates_of(request, sizes, Drawn(bar), library=True)
    if course is not None:
        found = course.selection(candidates)
    _tell_swept(found, request, output, json, digests)


def _tell_swept(
    found: Swept, request: Request, output: str | None, json: bool, digests: dict[str, str]
) -> None:
    """Write the selection where ``output`` says, and print what was found."""
    from ccctl.render.text import selection

    if output is not None:
        codec.write(output, "selection", found.selection, digests)
    if json and output != "-":
        told = {
            "candidates": found.candidates,
            "synthesis_s": found.sweep_s,
            "peak_bytes": found.peak_bytes,
            "seed": request.seed,
        }
        console.summary(selection.summary(found.selection) | told)
    else:
        say = console.data if output is None else console.note
        selection.draw(found.selection, say)
        say(
            f"{found.candidates} candidates timed at every size in {found.sweep_s:.1f} s, memory at most "
            f"{found.peak_bytes / 1e6:.0f} MB"
        )
    console.next_with(output, "ccctl show {}", "table.json")


def _once(
    request: Request, course: RaceLauncher | None, output: str | None, json: bool, digests: dict[str, str]
) -> None:
    from synth.portfolio import Synthesis, synthesize_either

    with console.progress("synth", 1.0) as bar:
        kept: list[Schedule] = []
        keep = kept.append if course else None
        found = synthesize_either(request, Drawn(bar), keep)
    if course is not None and isinstance(found, Synthesis):
        found = course.fastest(found, kept, request)
    _tell_found(found, output, json, digests)


def _tell_found(
    found: Synthesis | PeriodicSynthesis, output: str | None, json: bool, digests: dict[str, str]
) -> None:
    from synth.portfolio import Synthesis

    _tell(found, "schedule" if isinstance(found, Synthesis) else "periodic", output, json, digests)


def _tell(
    found: Synthesis | PeriodicSynthesis | SymmetricSynthesis,
    kind: str,
    output: str | None,
    json: bool,
    digests: dict[str, str],
) -> None:
    """Write the artifact where ``output`` says, and print what was found."""
    if output is not None:
        codec.write(output, kind, found.schedule, digests)
    if json and output != "-":
        console.summary(summaries.summary_of(found))
    elif output is None:
        describe(found, console.data)
    else:
        describe(found, console.note)
    console.next_with(output, "ccctl verify {}", "schedule.json")


def _collectives(
    network: Network, collective: str, ranks: str | None, root: int | None, without: str | None
) -> tuple[CollectiveRequest, ...]:
    failed = parse_failures(without, network).ranks if without is not None else ()
    return parse_collectives(collective, network.ranks, members=ranks, root=root, failed=failed)


def _request(
    network: Network,
    collectives: tuple[CollectiveRequest, ...],
    size: str | None,
    chunk: str | None,
    chunks: int | None,
    method: str,
    seed: int,
) -> Request:
    from synth.portfolio import Request

    _refuse_cuts(size, chunk, chunks)
    return Request(
        network=network,
        kind=collectives[0].kind,
        collectives=collectives,
        size_bytes=parse_size(size or "16M", "--size") if chunk is None else None,
        chunk_bytes=parse_size(chunk, "--chunk") if chunk is not None else None,
        chunks=chunks,
        method=method,
        seed=seed,
    )


def _refuse_cuts(size: str | None, chunk: str | None, chunks: int | None) -> None:
    if size is not None and chunk is not None:
        raise UsageError(
            "--size and --chunk exclude each other: --size chooses the chunks, --chunk fixes them"
        )
    if chunks is not None and chunk is None:
        raise UsageError("--chunks says how many chunks of --chunk each rank starts with; add --chunk")
