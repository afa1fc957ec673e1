"""The stages of planning as plain functions: values in, values out.

`synthesize` makes a schedule for a network, `verify` judges it, `simulate` times it, `compile` makes the
program that ranks execute. Each is importable from ``synth``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, overload

from probes.base import SILENT, Progress
from synth.check import check, judge
from synth.collective import Kind, kind_of
from synth.compiler import lower
from synth.errors import NotProvenError
from synth.network import Network
from synth.networks import failures_of
from synth.portfolio import (
    CollectiveRequest,
    ProcessPool,
    RaceRunner,
    Request,
    Synthesis,
    WorkerPools,
    planned,
)
from synth.program import FIFO_DEPTH, Program
from synth.schedules import AnySchedule, Timing
from synth.simulation import Costs, ProgramTiming, moved_to, replay, simulate_program, simulated

if TYPE_CHECKING:
    from synth.lang import Algorithm

__all__ = ["compile", "simulate", "synthesize", "verify"]


@overload
def synthesize(
    network: Request,
    *,
    race: RaceRunner | None = None,
    pools: WorkerPools = ProcessPool,
    progress: Progress = SILENT,
) -> Synthesis: ...
@overload
def synthesize(
    network: Network,
    collective: Kind | CollectiveRequest | tuple[CollectiveRequest, ...] = "all_reduce",
    size_bytes: int | None = None,
    *,
    race: RaceRunner | None = None,
    pools: WorkerPools = ProcessPool,
    progress: Progress = SILENT,
    **options: Any,
) -> Synthesis: ...
def synthesize(
    network: Network | Request,
    collective: Kind | CollectiveRequest | tuple[CollectiveRequest, ...] = "all_reduce",
    size_bytes: int | None = None,
    *,
    race: RaceRunner | None = None,
    pools: WorkerPools = ProcessPool,
    progress: Progress = SILENT,
    **options: Any,
) -> Synthesis:
    """Return the fastest schedule that any method finds for a collective on a network, proven and bounded.

    ``network`` is a network, with fields of a `Request` as ``options``, or a whole `Request`. ``collective``
    is a kind, a `CollectiveRequest` for some of the ranks, or several that run at once. ``size_bytes`` is the
    size of the buffer as nccl-tests counts it (default 16 MiB); chunks are chosen for it. Or give
    ``chunk_bytes`` and the number of ``chunks`` that each rank starts with, or ``sizes`` to sweep over.
    ``without`` lists failures, as in "rank:3,link:0-1". ``method`` names one of `METHODS`, "periodic" or
    "symmetric", or "auto" for all that may win; ``jobs`` other processes help. With ``listed`` the schedule
    lists all its sends. With ``trees`` chunks travel along trees, which relays need. The same ``seed`` gives
    the same schedule unless ``time_limit_s`` cuts the search short. With ``race`` the schedule that runs
    fastest on ranks is kept; without, the fastest in simulation.

    The result holds the schedule (times in seconds, with its proven lower bounds), all attempts and why it
    won. The schedule is a table of sends; if that is too long, a periodic or symmetric schedule; for several
    sizes, a selection. Takes milliseconds for tens of ranks, seconds for thousands.

    Raises UsageError where no method serves the request, UnavailableError where memory or solver is missing.

    >>> from synth import family, synthesize
    >>> torus = family("torus:3x3", [0.5e-6], [50e9])
    >>> found = synthesize(torus, "all_gather", 9 << 20)
    >>> found.schedule.outcome.percent_of_optimal > 95
    True
    """
    if isinstance(network, Request):
        return planned(network, progress, race=race, pools=pools)
    if isinstance(failed := options.get("without"), str):
        options["without"] = failures_of(failed, network) if failed else None
    kind, asked = _kind_and_requests(collective)
    whole = {"jobs": 0, "size_bytes": size_bytes, "collectives": asked} | options
    return planned(Request(network=network, kind=kind, **whole), progress, race=race, pools=pools)


def _kind_and_requests(
    collective: Kind | CollectiveRequest | tuple[CollectiveRequest, ...],
) -> tuple[Kind, tuple[CollectiveRequest, ...]]:
    if isinstance(collective, str):
        return kind_of(collective), ()
    asked = (collective,) if isinstance(collective, CollectiveRequest) else tuple(collective)
    return asked[0].kind, asked


def verify(made: AnySchedule | Program, fifo_depth: int = FIFO_DEPTH) -> list[str]:
    """Return what is wrong with a schedule of any kind or a program, each with its place; [] proves it.

    A schedule is proven when every send is causal, links and ports are exclusive and every rank ends with
    what the collective asks. The proof covers any number of periods of a periodic schedule, and all sends
    that a symmetric schedule implies. A program is followed step by step (GC3, Sec. 4): no race, no unwritten
    slot, every contribution exactly once, no deadlock with ``fifo_depth`` messages in a connection. The judge
    shares no code with the makers of schedules and programs. O(sends), and O(steps) for most programs.

    >>> from synth import family, synthesize, verify
    >>> found = synthesize(family("ring:4", [0.0], [1e9]), "all_reduce", 1 << 20)
    >>> verify(found.schedule)
    []
    >>> ring, options = family("ring:4", [0.0], [1e9]), ({"method": "periodic"}, {"sizes": (1024, 4096)})
    >>> [verify(synthesize(ring, **each).schedule) for each in (*options, {"method": "symmetric"})]
    [[], [], []]
    """
    return judge(made, fifo_depth) if isinstance(made, Program) else check(made)


@overload
def simulate(
    made: AnySchedule,
    network: Network | None = None,
    chunk_bytes: int | None = None,
    *,
    size_bytes: int | None = None,
) -> Timing: ...
@overload
def simulate(
    made: Program, network: Network, chunk_bytes: int, costs: Costs | None = None
) -> ProgramTiming: ...
def simulate(
    made: AnySchedule | Program,
    network: Network | None = None,
    chunk_bytes: int | None = None,
    costs: Costs | None = None,
    *,
    size_bytes: int | None = None,
) -> Timing | ProgramTiming:
    """Return when each send of a schedule, or each step of a program, starts and ends, in seconds.

    By default a schedule is timed on its own network with its own chunks; with ``size_bytes``, with the
    chunks of a buffer of that size. A selection is timed for its largest size. The result covers the sends of
    the schedule's table. A periodic schedule's table has the sends of the first period, a symmetric one's the
    listed sends. On another ``network``, or with other chunks, it covers all sends. A program needs a
    ``network`` and ``chunk_bytes``; ``costs`` are the costs of its steps.

    A link and its ports carry one message at a time, so transfers wait for each other (the alpha-beta model,
    Hockney 1994). O(sends · ports of a link); O(steps · log threadblocks).

    Raises UsageError where the network lacks a link that is used.

    >>> from synth import family, simulate, synthesize
    >>> found = synthesize(family("ring:4", [0.0], [1e9]), "all_gather", chunk_bytes=1000, chunks=1)
    >>> f"{simulate(found.schedule).time_s * 1e6:.1f} us"
    '2.0 us'
    >>> ring, options = family("ring:4", [0.0], [1e9]), ({"method": "periodic"}, {"sizes": (1024, 4096)})
    >>> every = [synthesize(ring, **each).schedule for each in (*options, {"method": "symmetric"})]
    >>> [f"{simulate(each, size_bytes=1 << 20).time_s * 1e6:.0f} us" for each in every]
    ['791 us', '786 us', '786 us']
    """
    if not isinstance(made, Program):
        sized = made if size_bytes is None else made.of_size(size_bytes)
        if network is None and chunk_bytes is None:
            return simulated(sized)
        table = sized.expanded()
        return replay(moved_to(table, network or table.network, chunk_bytes or table.chunk_bytes))
    if network is None or chunk_bytes is None:
        raise TypeError("a program has no network and no chunk size of its own: give both")
    return simulate_program(made, network, chunk_bytes, costs)


def compile(  # noqa: A001 - what GC3 calls it
    made: AnySchedule | Algorithm,
    parameters: Mapping[str, Any] | None = None,
    *,
    network: Network | None = None,
    size_bytes: int | None = None,
    instances: int = 1,
    fuse: bool = True,
) -> Program:
    """Return the program of a schedule, or of an algorithm in the chunk language, proven (GC3, Sec. 5).

    A periodic or symmetric schedule is expanded to all its sends, for a buffer of ``size_bytes`` if given. A
    selection gives its schedule for that size, by default for its largest. ``parameters`` are those of an
    algorithm. If ``network`` is given, it must have a link for each copy from rank to rank. ``instances`` is
    the number of parallel copies that share every chunk (Sec. 5.3.2); ``fuse`` joins a receive with the send
    that passes its chunk on. About a second for 100,000 steps.

    Raises NotProvenError with the findings where the schedule or the program is wrong.

    >>> from synth import compile, family, synthesize
    >>> found = synthesize(family("ring:4", [0.0], [1e9]), "all_gather", 1 << 20)
    >>> compile(found.schedule).ranks
    4
    >>> ring, options = family("ring:4", [0.0], [1e9]), ({"method": "periodic"}, {"sizes": (1024, 4096)})
    >>> every = [synthesize(ring, **each).schedule for each in (*options, {"method": "symmetric"})]
    >>> [compile(each, size_bytes=4096).ranks for each in every]
    [4, 4, 4]
    """
    from synth.lang import Algorithm

    if isinstance(made, Algorithm):
        given = dict(parameters or {}) | ({"instances": instances} if instances != 1 else {})
        program = made.compile(given, network=network, fuse=fuse)
    else:
        sized = made if size_bytes is None else made.of_size(size_bytes)
        _refuse(check(sized))
        program = lower(sized.expanded(), instances=instances, fuse=fuse)
    _refuse(judge(program))
    return program


def _refuse(findings: list[str]) -> None:
    if findings:
        raise NotProvenError(findings)
