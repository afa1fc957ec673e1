"""From the options of ``bench`` to what the ranks are asked to measure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ccctl.arguments.contenders import Contestant
from ccctl.errors import UsageError

if TYPE_CHECKING:
    from exec.benchmark.runner import BenchRequest

__all__ = ["How", "requests"]


@dataclass(frozen=True)
class How:
    """How often, and how the times of a run become one; ``average`` is nccl-tests' -a."""

    warmup: int
    iterations: int
    aggregate: int = 1
    cycles: int = 1
    average: int = 3
    check: bool = True
    samples: bool = False
    window: bool = False
    device: str = "cpu"


def requests(
    found: Sequence[Contestant],
    sizes: Sequence[int],
    dtypes: str,
    ops: str,
    placement: str,
    vs: str | None,
    how: How,
) -> tuple[BenchRequest, ...]:
    """One request for each element type, operator and size, as often as there are cycles."""
    from exec.peers.registry import parse_peers
    from exec.program.dtypes import DTYPES, REDOPS, dtype_of, ufunc_of
    from exec.program.layout import count_of

    peers, placements = parse_peers(vs), _placements(placement, found)
    asked_ops = _several(ops, REDOPS)
    for op in asked_ops:
        ufunc_of(op)
    collective = found[0].proven.program.collective
    once = []
    for dtype in _several(dtypes, DTYPES):
        itemsize = dtype_of(dtype).itemsize
        counts = dict.fromkeys(count_of(collective, size, itemsize) for size in sizes)
        # Nothing is reduced by a gather: one operator stands for all.
        for op in asked_ops if collective.reduces else asked_ops[:1]:
            once += [_request(found, count, dtype, op, placements, peers, how) for count in counts]
    return tuple(once * how.cycles)


def _request(
    found: Sequence[Contestant],
    count: int,
    dtype: str,
    op: str,
    placements: tuple[bool, ...],
    peers: tuple[str, ...],
    how: How,
) -> BenchRequest:
    from exec.benchmark.runner import BenchRequest, Contender
    from exec.benchmark.timing import AVERAGES
    from exec.executors import parse_device
    from exec.program.dtypes import dtype_of
    from exec.program.layout import size_bytes_of

    itemsize = dtype_of(dtype).itemsize
    size_bytes = size_bytes_of(found[0].proven.program.collective, count, itemsize)
    first, *others = [
        Contender(
            one.called(size_bytes),
            one.at(size_bytes).program,
            (one.predicted_s(size_bytes, count, itemsize),),
        )
        for one in found
    ]
    return BenchRequest(
        program=first.program,
        counts=(count,),
        predicted_s=first.predicted_s,
        dtype=dtype,
        redop=op,
        warmup=how.warmup,
        iterations=how.iterations,
        placements=placements,
        peers=peers,
        name=first.name,
        beside=tuple(others),
        aggregate=how.aggregate,
        average=AVERAGES[how.average],
        check=how.check,
        samples=how.samples,
        window=how.window,
        device=parse_device(how.device),
    )


def _several(text: str, every: Sequence[str]) -> tuple[str, ...]:
    if text == "all":
        return tuple(every)
    return tuple(dict.fromkeys(part.strip() for part in text.split(",")))


def _placements(placement: str, found: Sequence[Contestant]) -> tuple[bool, ...]:
    asked = {"out": (False,), "in": (True,), "both": (False, True)}.get(placement)
    if asked is None:
        raise UsageError(f"--placement: expected out, in or both, found {placement!r}")
    programs = [one.proven.program for one in found]
    possible = {
        False: all(program.out_of_place for program in programs),
        True: all(program.in_place for program in programs),
    }
    chosen = tuple(in_place for in_place in asked if possible[in_place])
    if not chosen:
        names = " and ".join(program.name for program in programs)
        raise UsageError(f"--placement {placement}: {names} cannot run so")
    return chosen
