"""Profiles and schedules that `ccctl bench` makes if the user gives no artifact."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ccctl import console
from ccctl.arguments import Contestant, of_selection, parse_collectives
from ccctl.artifacts import ArtifactCache, codec
from ccctl.errors import FoundProblem, UsageError
from ccctl.launching import Deadline, Drawn, World, placed, started_by_mpi
from ccctl.runs import ProfileRun, RaceLauncher
from probes.base import plural

if TYPE_CHECKING:
    from ccctl.artifacts import Artifact
    from synth.network import Network
    from synth.portfolio import CollectiveRequest

__all__ = ["BenchWorkload", "measured_network", "prepared", "request_of"]

# With more ranks than this, the profile is a quick one.
_THOROUGH_RANKS = 16
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


@dataclass(frozen=True)
class BenchWorkload:
    """The benchmark to run: a collective at some sizes, on the ranks of ``world``.

    ``profile`` is the path of a profile, None to measure one. With ``race``, schedules that are predicted
    about equal are run, and the fastest wins; ``sockets`` runs them over sockets instead of MPI. ``runtime``
    names a runtime that must be able to load the schedules ("" for none); it excludes ``race``. ``fresh``
    ignores the artifacts of earlier runs. ``device`` is one of ``exec.executors``. ``timeout_s`` limits the
    whole preparation.
    """

    collective: str
    root: int | None
    sizes: tuple[int, ...]
    world: World
    profile: str | None = None
    device: str = "cpu"
    sockets: bool = False
    race: bool = True
    runtime: str = ""
    fresh: bool = False
    timeout_s: float | None = None


def prepared(wanted: BenchWorkload) -> tuple[Contestant, float | None]:
    """Return (schedules for these ranks, seconds left of the timeout).

    Raises UsageError for a wrong request, and TimeoutExpired.
    """
    deadline = Deadline(wanted.timeout_s)
    cache = ArtifactCache()
    profile = _profile_of(wanted, cache)
    return _select_schedules(wanted, profile, cache), deadline.left_s()


def measured_network(wanted: BenchWorkload) -> tuple[Network, dict[str, str], float | None]:
    """Return (the network of these ranks, the digests of its artifacts, seconds left of the timeout).

    Raises UsageError for a wrong request, and TimeoutExpired.
    """
    from synth.networks import from_profile

    deadline = Deadline(wanted.timeout_s)
    profile = _profile_of(wanted, ArtifactCache())
    network = from_profile(profile.body, wanted.profile or "the measured network")
    return network, {"profile": profile.sha256}, deadline.left_s()


def _profile_of(wanted: BenchWorkload, cache: ArtifactCache) -> Artifact:
    """Return the given profile, or the one measured for these ranks; raises UsageError."""
    if started_by_mpi():
        raise UsageError(
            "without an ARTIFACT ccctl bench starts ranks several times: run it outside mpirun and srun",
            hint="Give it -n or --hosts, or an ARTIFACT from ccctl synth.",
        )
    if wanted.profile is None:
        # Refuse a wrong collective or root before minutes of measuring.
        request_of(wanted, placed(wanted.world)[0])
    profile = codec.read(wanted.profile, "profile") if wanted.profile else _profile(wanted, cache)
    asked, measured = wanted.world.ranks, len(profile.body.ranks)
    if wanted.profile is not None and asked not in (None, measured):
        raise UsageError(
            f"-n asks for {asked} ranks, {wanted.profile} is of {measured}",
            hint="Leave -n out, or --profile, to measure the links between so many.",
        )
    return profile


def _profile(wanted: BenchWorkload, cache: ArtifactCache) -> Artifact:
    """Return the profile of the ranks, from an earlier run on these hosts or measured now."""
    from probes.live import host_key
    from probes.profiling import Effort

    ranks, where = placed(wanted.world)
    device = {"cpu": "process", "cuda": "cuda"}.get(wanted.device, "auto")
    # `host_key` tells boots and network namespaces of this host apart, because their links may differ.
    key = {"ranks": ranks, "hosts": where, "device": device, "machine": host_key()}
    hosts = f"{plural(len(where), 'host')}" if where else "this host"
    what = f"the links between {plural(ranks, 'rank')} on {hosts}"

    def measured() -> Any:
        console.note(f"profile: measuring {what}")
        effort = Effort(quick=ranks > _THOROUGH_RANKS, device=device)  # type: ignore[arg-type]
        measurement = ProfileRun(effort, replace(wanted.world, ranks=ranks), wanted.timeout_s)
        found = measurement.result()
        if problem := measurement.problem():
            raise FoundProblem(problem, hint="Name the others alone with --hosts.")
        return found

    return _cached_or_made("profile", key, cache, wanted.fresh, measured, {})


def _select_schedules(wanted: BenchWorkload, profile: Artifact, cache: ArtifactCache) -> Contestant:
    """Return the schedules for each size on a profile's network, from an earlier run or synthesized now."""
    from synth.networks import from_profile

    network = from_profile(profile.body, "the measured network")
    request = request_of(wanted, network.ranks)
    key = {
        "profile": profile.sha256,
        "collective": request.kind,
        "root": request.root,
        "sizes": wanted.sizes,
    }
    launcher = None
    if wanted.race:
        launcher = RaceLauncher.of(
            network, wanted.world, wanted.timeout_s, sockets=wanted.sockets, device=wanted.device
        )
        key |= {"raced": [wanted.device, wanted.sockets, launcher.library, *placed(launcher.world)]}
    if wanted.runtime:
        key["runtime"] = wanted.runtime
    inputs = {"profile": profile.sha256}

    def synthesized() -> Any:
        console.note(
            f"schedules: synthesizing {request.kind} for {plural(len(wanted.sizes), 'size')} "
            f"on {plural(network.ranks, 'rank')}"
        )
        return _synthesize_sizes(network, request, wanted, launcher)

    selection = _cached_or_made("selection", key, cache, wanted.fresh, synthesized, inputs)
    digests = {**inputs, "selection": selection.sha256}
    return of_selection("ccctl", selection.body, digests, None, launcher.library if launcher else "")


def _cached_or_made(
    kind: str,
    key: dict[str, object],
    cache: ArtifactCache,
    fresh: bool,
    made: Callable[[], Any],
    inputs: dict[str, str],
) -> Artifact:
    """Return the artifact of an earlier run, with a note of its age, or make it now and keep it."""
    cached = None if fresh else cache.read(kind, key)
    if cached is not None:
        console.note(
            f"{kind}: the one kept by an earlier run {_age(cached.age_s)} ago; --fresh makes a new one"
        )
        console.detail(f"{kind}: kept as {cached.artifact.source}")
        return cached.artifact
    artifact = cache.keep(kind, key, made(), inputs)
    if path := cache.path(kind, key):
        console.detail(f"{kind}: kept as {path}")
    return artifact


def request_of(wanted: BenchWorkload, ranks: int) -> CollectiveRequest:
    """Return the collective to run; raise UsageError for several, or for groups of ranks."""
    if ranks < 2:
        raise UsageError("-n 1: a collective needs two ranks at least")
    found = parse_collectives(wanted.collective, ranks, root=wanted.root)
    if len(found) > 1 or found[0].members or found[0].sets is not None:
        raise UsageError(
            f"--collective {wanted.collective}: expected one collective of all ranks",
            hint="Synthesize others with ccctl synth, and give the file.",
        )
    if found[0].root >= ranks:
        raise UsageError(f"-r {found[0].root}: there is no such rank among {ranks}")
    return found[0]


def _synthesize_sizes(
    network: Network, asked: CollectiveRequest, wanted: BenchWorkload, launcher: RaceLauncher | None
) -> Any:
    from synth import Request, synthesize
    from synth.portfolio import cores, warm

    request = Request(
        network,
        asked.kind,
        collectives=(asked,),
        sizes=wanted.sizes,
        jobs=cores(),
        runtime=wanted.runtime,
    )
    with ExitStack() as drawn:
        bar = Drawn(drawn.enter_context(console.progress("schedules", 1.0)))
        warm(network.ranks)
        if launcher is None:
            return synthesize(request, progress=bar).schedule
        library = launcher.library

        def begin() -> None:
            drawn.close()
            beside = f" and {library}'s own" if library else ""
            console.note(
                f"race: running the schedules predicted about equal{beside}; each size keeps the fastest"
            )

        return synthesize(request, race=replace(launcher, begin=begin), progress=bar).schedule


def _age(seconds: float) -> str:
    """Return an age in its largest unit: 12 s, 5 min, 3 h, 2 d."""
    unit, length = next((entry for entry in _UNITS if seconds >= entry[1]), _UNITS[-1])
    return f"{seconds / length:.0f} {unit}"
