"""The requests of ``bench`` to its ranks: each artifact as a program for every size, and how to measure it.

Impossible requests are refused before a rank is started.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ccctl import console
from ccctl.arguments.proven import Proven, proven_artifact, proven_program, proven_schedule, refuse_parameters
from ccctl.artifacts import codec
from ccctl.errors import UsageError
from ccctl.launching import World, over_sockets, started_by_mpi
from probes.base import meant, some
from synth.lang import is_algorithm
from synth.multimem import refuse_switches

if TYPE_CHECKING:
    from ccctl.arguments.bench_options import BenchOptions
    from ccctl.artifacts import Artifact
    from exec.benchmark import BenchRequest, Contender, GroupsRequest, MeasuredGroup
    from synth.collective import Kind
    from synth.network import Network
    from synth.program import Program
    from synth.schedules import Schedule, Selection
    from synth.side_by_side import GroupTimes, SideBySide, StepGroup

__all__ = [
    "BenchSetup",
    "Contestant",
    "contestants",
    "group_elements",
    "groups_request",
    "of_selection",
    "setup_of",
]

_APART = ("all_to_all", "all_to_next")
_MOST_NAMED = 3


@dataclass(frozen=True)
class Contestant:
    """One artifact of the command line: what runs at a size, and where it came from.

    ``library_here`` is the library that the ranks have. Its own collective runs at the sizes at which the
    selection names it.
    """

    name: str
    proven: Proven
    network: Network | None
    selection: Selection | None = None
    library_here: str = ""
    _chosen: dict[int, Proven] = field(default_factory=dict)

    def at(self, size_bytes: int) -> Proven:
        """Return what runs at a size; each algorithm of a selection is proven and compiled once."""
        if self.selection is None:
            return self.proven
        schedule = self.selection.choose(size_bytes)
        key = id(schedule.chunk)
        if key not in self._chosen:
            self._chosen[key] = proven_schedule(schedule, self.name, self.proven.inputs)
        return self._chosen[key]

    def called(self, size_bytes: int) -> str:
        """Return the name at a size; for a selection, with the method or library chosen there."""
        if library := self.library(size_bytes):
            return f"{self.name}: {library}"
        schedule = self.at(size_bytes).schedule
        return f"{self.name}: {schedule.method}" if self.selection and schedule else self.name

    def library(self, size_bytes: int) -> str:
        """Return the library that runs at a size in place of a schedule; "" for none."""
        named = self.selection.library(size_bytes) if self.selection else ""
        return named if named == self.library_here else ""

    def contender(self, size_bytes: int, count: int, itemsize: int, *, explain: bool) -> Contender:
        """Return what runs at a size, with its predicted time unless a library runs or no network is known.

        With ``explain``, it also holds what the predicted time is made of.
        """
        from exec.benchmark import Contender, forecast
        from exec.program import Layout
        from synth.prediction import predicted_s

        found, name = self.at(size_bytes), self.called(size_bytes)
        if library := self.library(size_bytes):
            # A library's transfers are unknown, so its time is not predicted.
            return Contender(name, found.program, library=library)
        network = self.network or (found.schedule.network if found.schedule else None)
        if network is None:
            return Contender(name, found.program)
        chunk_bytes = Layout(found.program, count).largest * itemsize
        if not explain:
            return Contender(name, found.program, (predicted_s(found.program, network, chunk_bytes),))
        prediction = forecast(found.program, network, chunk_bytes)
        return Contender(name, found.program, (prediction.time_s,), (prediction,), network)


def contestants(
    paths: Sequence[str], parameters: Sequence[str] | None, profile: str | None, library: str
) -> list[Contestant]:
    """Return the proven artifacts of ``paths``; raises UsageError if their collectives differ, or cannot run.

    ``library`` is the library of the ranks; "" for none.
    """
    if not any(map(is_algorithm, paths)):
        refuse_parameters(paths[0], parameters)
    network = _network(profile)
    found = [replace(_contestant(path, parameters, network), library_here=library) for path in paths]
    first = found[0].proven.program
    for path, one in zip(paths, found, strict=True):
        program = one.proven.program
        if library != "nccl":
            refuse_switches(program, "an executor on CPUs")
        if one is not found[0]:
            _refuse_another(paths[0], first, path, program)
        if network is not None and network.ranks != program.ranks:
            raise UsageError(f"{path} is for {program.ranks} ranks, {profile} has {network.ranks}")
    names = [one.name for one in found]
    if len(set(names)) == len(names):
        return found
    return [replace(one, name=Path(path).name) for one, path in zip(found, paths, strict=True)]


def _contestant(path: str, parameters: Sequence[str] | None, network: Network | None) -> Contestant:
    if is_algorithm(path):
        proven = proven_program(path, parameters=parameters)
        return Contestant(proven.program.name, proven, network)
    found = codec.read(path, *codec.SCHEDULE_KINDS, "program")
    if found.kind != "program" and not found.body.is_sized:
        return of_selection(Path(path).name, found.body, {found.kind: found.sha256}, network)
    proven = proven_artifact(found)
    return Contestant(proven.program.name, proven, network)


def of_selection(
    name: str, selection: Selection, inputs: dict[str, str], network: Network | None, library: str = ""
) -> Contestant:
    """Return a contestant for a selection; ``inputs`` are digests, ``library`` is what the ranks have."""
    proven = proven_schedule(selection.choose(1), name, inputs)
    return Contestant(name, proven, network, selection, library)


def _network(profile: str | None) -> Network | None:
    if profile is None:
        return None
    from synth.networks import from_profile

    return from_profile(codec.read(profile, "profile").body, profile)


def _refuse_another(first_path: str, first: Program, path: str, other: Program) -> None:
    both = [(one.collective.kind, one.ranks, one.collective.root) for one in (first, other)]
    alike = both[0] == both[1] and first.collective.whole and other.collective.whole
    if alike or (first.collective.blocks and first.collective.same_but_for_chunks(other.collective)):
        return
    raise UsageError(
        f"{path} is {other.collective.label} on {other.ranks} ranks, "
        f"{first_path} {first.collective.label} on {first.ranks}: only one collective can be compared"
    )


@dataclass(frozen=True)
class BenchSetup:
    """The choices of a command line that hold for any collective and any number of ranks.

    ``baseline`` is the report to compare with; ``here`` says whether all ranks run on this host.
    """

    options: BenchOptions
    sizes: tuple[int, ...]
    dtypes: tuple[str, ...]
    ops: tuple[str, ...]
    placements: tuple[bool, ...]
    peers: tuple[str, ...]
    baseline: Artifact | None
    here: bool
    sockets: bool

    def refuse(self, kind: Kind, ranks: int) -> None:
        """Raise UsageError or UnavailableError if these ranks cannot run ``kind`` as chosen."""
        from synth.collective import REDUCING, ROOTED

        root = self.options.root
        if root is not None and kind not in ROOTED:
            raise UsageError(f"-r {root}: {kind} has no root")
        if kind in _APART and False not in self.placements:
            raise UsageError(f"--placement in: {kind} cannot run in place")
        if self.baseline is not None:
            _refuse_incomparable(self.baseline, kind, self.dtypes, self.ops if kind in REDUCING else ())
        if self.here and not started_by_mpi():
            self._refuse_crowd(kind, ranks)

    def _refuse_crowd(self, kind: Kind, ranks: int) -> None:
        """Raise UnavailableError where this host lacks the memory for its ranks' buffers."""
        from exec.memory_demand import least_bench_need
        from exec.program import dtype_of
        from probes.live import refuse_crowding, rooms

        # The check of results takes one more byte for each element, so the largest element type needs the
        # least memory.
        item_bytes, size_bytes = max(dtype_of(dtype).itemsize for dtype in self.dtypes), max(self.sizes)
        need = least_bench_need(kind, ranks, size_bytes, item_bytes, self.placements, peers=bool(self.peers))
        refuse_crowding([(socket.gethostname(), rooms(), need)], f"{kind} of {size_bytes} bytes")

    def requests(self, found: Sequence[Contestant], peers: tuple[str, ...]) -> tuple[BenchRequest, ...]:
        """Return a request for each element type, operator and size; each measures ``peers``."""
        from exec.program import count_of, dtype_of

        collective, placements = found[0].proven.program.collective, self._possible(found)
        once = []
        for dtype in self.dtypes:
            itemsize = dtype_of(dtype).itemsize
            counts = dict.fromkeys(count_of(collective, size, itemsize) for size in self.sizes)
            # For a collective that reduces nothing, such as a gather, one operator stands for all.
            for op in self.ops if collective.reduces else self.ops[:1]:
                once += [self._request(found, count, dtype, op, placements, peers) for count in counts]
        return tuple(once) * self.options.cycles

    def _request(
        self,
        found: Sequence[Contestant],
        count: int,
        dtype: str,
        op: str,
        placements: tuple[bool, ...],
        peers: tuple[str, ...],
    ) -> BenchRequest:
        from exec.benchmark import AVERAGES, BenchRequest
        from exec.executors import parse_device
        from exec.program import dtype_of, size_bytes_of

        options, itemsize = self.options, dtype_of(dtype).itemsize
        size_bytes = size_bytes_of(found[0].proven.program.collective, count, itemsize)
        explain = options.explain
        return BenchRequest(
            contenders=tuple(one.contender(size_bytes, count, itemsize, explain=explain) for one in found),
            counts=(count,),
            dtype=dtype,
            redop=op,
            placements=placements,
            explain=explain,
            warmup=options.warmup,
            iterations=options.iterations,
            aggregate=options.aggregate,
            average=AVERAGES[options.average],
            check=bool(options.check),
            samples=options.per_iteration,
            window=options.window,
            device=parse_device(options.device),
            peers=peers,
        )

    def _possible(self, found: Sequence[Contestant]) -> tuple[bool, ...]:
        programs = [one.proven.program for one in found]
        possible = {
            False: all(program.out_of_place for program in programs),
            True: all(program.in_place for program in programs),
        }
        chosen = tuple(in_place for in_place in self.placements if possible[in_place])
        if not chosen:
            wanted = {"out": "out of place", "in": "in place"}.get(
                self.options.placement, "both in and out of place"
            )
            names = " and ".join(
                program.name
                for program in programs
                if not any(
                    program.in_place if in_place else program.out_of_place for in_place in self.placements
                )
            )
            raise UsageError(
                f"--placement {self.options.placement}: {names or 'not all programs'} cannot run {wanted}"
            )
        return chosen


def setup_of(options: BenchOptions) -> BenchSetup:
    """Return the set-up that the options ask for; wrong options are refused before any measuring.

    Raises UsageError, and UnavailableError where this host lacks what its ranks need.
    """
    from ccctl.artifacts import read_any
    from exec.executors import parse_device
    from exec.peers import parse_peers

    _refuse_operator_as_file(options.output)
    sizes, sockets = options.sizes(), over_sockets(options.wires)
    if options.explain and options.aggregate > 1:
        raise UsageError(f"--explain tells of one call: leave out -m {options.aggregate}")
    if sockets and options.vs is not None:
        raise UsageError("--vs measures libraries, whose ranks MPI joins: leave out --wires sockets")
    parse_device(options.device)
    dtypes, ops = _elements(options.dtype, options.op)
    places = _placements(options.placement)
    peers = () if options.vs == "none" else parse_peers(options.vs)
    before = read_any(options.baseline, "report") if options.baseline is not None else None
    if before is not None and before.body.interrupted:
        console.warn(f"{before.source} is of a run that was interrupted: {before.body.interrupted}")
    here = options.hosts is None and options.world(options.ranks) == World(options.ranks)
    if here:
        _require_here(peers, options.device, sockets=sockets)
    return BenchSetup(options, sizes, dtypes, ops, places, peers, before, here, sockets)


def group_elements(options: BenchOptions) -> tuple[str, str]:
    """Return the element type and the operator of the groups of a step; raises UsageError for several."""
    dtypes, ops = _elements(options.dtype, options.op)
    for option, several in (("-d", dtypes), ("--op", ops)):
        if len(several) > 1:
            raise UsageError(f"{option} {','.join(several)}: groups have one at a time")
    return dtypes[0], ops[0]


def groups_request(
    options: BenchOptions, network: Network, found: SideBySide, dtype: str, op: str
) -> GroupsRequest:
    """Return the request to measure the groups of a step, with proven programs."""
    from exec.benchmark import AVERAGES, GroupsRequest

    groups = tuple(
        _measured_group(network, *parts, dtype)
        for parts in zip(found.groups, found.times, found.singly, found.schedules, strict=True)
    )
    ends_s = [max(group.release_s + group.predicted_s[way] for group in groups) for way in (1, 2)]
    return GroupsRequest(
        groups,
        (ends_s[0], ends_s[1]),
        dtype,
        op,
        options.warmup,
        options.iterations,
        AVERAGES[options.average],
        check=bool(options.check),
        samples=options.per_iteration,
    )


def _measured_group(
    network: Network, group: StepGroup, times: GroupTimes, singly: Schedule, together: Schedule, dtype: str
) -> MeasuredGroup:
    """Return a group with its programs and predicted times.

    The simulator of groups leaves out what steps cost; this is added, as the prediction of each program has
    it.
    """
    from exec.benchmark import MeasuredGroup
    from exec.program import count_of, dtype_of
    from synth.prediction import predicted_s
    from synth.simulation import replay

    count = count_of(singly.collective, group.size_bytes, dtype_of(dtype).itemsize)
    programs, steps_s = [], []
    for schedule in (singly, together):
        program = proven_schedule(schedule, group.name, {}).program
        steps_s.append(predicted_s(program, network, schedule.chunk_bytes) - replay(schedule).time_s)
        programs.append(program)
    simulated = (times.alone_s + steps_s[0], times.ignoring_s + steps_s[0], times.together_s + steps_s[1])
    return MeasuredGroup(group.name, group.release_s, count, programs[0], programs[1], simulated)


def _require_here(peers: tuple[str, ...], device: str, *, sockets: bool) -> None:
    """Raise UnavailableError where this host lacks what its ranks need, before seconds of synthesis."""
    from exec.executors import require_device_here
    from exec.launcher.starters import mpirun
    from exec.peers import require_here

    require_here(peers)
    require_device_here(device)
    if not sockets and not started_by_mpi():
        mpirun.find()


def _elements(dtypes: str, ops: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the element types and operators asked for; raises UsageError for an unknown name."""
    from exec.program import DTYPES, REDOPS, dtype_of, ufunc_of

    asked_types, asked_ops = _several(dtypes, DTYPES), _several(ops, REDOPS)
    for dtype in asked_types:
        dtype_of(dtype)
    for op in asked_ops:
        ufunc_of(op)
    return asked_types, asked_ops


def _several(text: str, every: Sequence[str]) -> tuple[str, ...]:
    if text == "all":
        return tuple(every)
    return tuple(dict.fromkeys(part.strip().lower() for part in text.split(",")))


def _placements(placement: str) -> tuple[bool, ...]:
    """Return the placements that "out", "in" or "both" asks for, True for in place.

    Raises UsageError for any other text.
    """
    asked = {"out": (False,), "in": (True,), "both": (False, True)}.get(placement)
    if asked is None:
        raise UsageError(
            f"--placement: expected out, in or both, found {placement!r}",
            hint=meant(placement.lower().removesuffix("place"), ("out", "in", "both")),
        )
    return asked


def _refuse_operator_as_file(output: str | None) -> None:
    """Raise UsageError where -o was meant as nccl-tests means it: the operator."""
    from exec.program import REDOPS

    word = (output or "").lower()
    if word in (*REDOPS, "all", "mulsum"):
        known = word if word != "mulsum" else "prod"
        raise UsageError(
            f"-o {output}: -o names the file of the report",
            hint=f"Write --op {known}; -o ./{output} writes a file of that name.",
        )


def _refuse_incomparable(before: Artifact, kind: str, dtypes: Sequence[str], ops: Sequence[str]) -> None:
    """Raise UsageError if no row of a baseline has the collective, type and operator asked for.

    Sizes are not compared. ``ops`` are the operators asked for; empty for a collective that reduces nothing.
    """
    from exec.program import dtype_name, dtype_of

    # A report names a type in one way, a command line in several: double is float64.
    names = {dtype_name(dtype_of(dtype)) for dtype in dtypes}
    for row in before.body.rows:
        if row.collective == kind and row.dtype in names and (not ops or row.redop in ops):
            return
    rows = dict.fromkeys(f"{row.collective} of {row.dtype} ({row.redop})" for row in before.body.rows)
    raise UsageError(
        f"--baseline {before.source}: it has no row of {kind}, {' or '.join(dtypes)}"
        f"{', ' + ' or '.join(ops) if ops else ''}",
        hint=f"It has {some(list(rows), _MOST_NAMED)}.",
    )
