"""`ccctl watch`: whether the network still meets its baseline, and the schedule for it now."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ccctl import console
from ccctl.arguments import GeneralOptions, PrometheusFile, WorldOptions
from ccctl.artifacts import codec
from ccctl.errors import FoundProblem, UsageError
from ccctl.launching import Deadline, Drawn, World, placed, started_by_mpi
from ccctl.render import prometheus
from ccctl.rescue import rescuing
from ccctl.runs import ProfileRun
from probes.base import decimal, parse_duration, plural

if TYPE_CHECKING:
    from ccctl.watch import LinkTurns, Measure, StateFolder, WatchFindings, WatchOutcome, WatchRequest
    from probes.link_costs import Profile

__all__ = ["EXAMPLES", "FILES", "watch"]

EXAMPLES = (
    (
        "ccctl watch --baseline profile.json --schedule schedule.json --state watch -n 4 --threshold 80%"
        " || echo 'drift, or it failed'",
        "one run: measure, compare, plan anew where that pays; watch/current.json is the schedule to load",
    ),
    (
        "ccctl watch --baseline profile.json --schedule schedule.json --state watch -n 4 --budget 5s"
        " --prometheus watch.prom --json || true",
        "within five seconds, as one object, with figures for Prometheus' node exporter",
    ),
)
# These files are shipped with ccctl and shown in the manual.
FILES = (
    "examples/systemd/ccctl-watch.service",
    "examples/systemd/ccctl-watch.timer",
    "examples/cron/ccctl-watch",
    "examples/slurm/ccctl-watch-drain",
)

# No link can lose all of its bandwidth, so a threshold of 100 % would never be reached.
_MOST_SHARE = 0.99
_LEAST_BUDGET_S, _MOST_BUDGET_S = 0.1, 1e9
# The most suspects that are measured again one at a time, which takes some seconds.
_MOST_ALONE = 32


@dataclass(frozen=True)
class WatchOptions(GeneralOptions, WorldOptions):
    """The arguments and options of ``watch``."""

    baseline: Annotated[
        str, typer.Option("--baseline", metavar="FILE", help="The profile of the network as it should be.")
    ]
    schedule: Annotated[
        str, typer.Option("--schedule", metavar="FILE", help="The schedule that was made for it.")
    ]
    state: Annotated[
        str,
        typer.Option(
            "--state", metavar="DIR", help="Folder that keeps state between runs; made if it does not exist."
        ),
    ]
    threshold: Annotated[
        str,
        typer.Option(
            "--threshold",
            metavar="auto|SHARE",
            help="Share of its bandwidth that a link may lose, such as 10%; auto: more than its usual "
            "variation, and more than 8%.",
        ),
    ] = "auto"
    gain: Annotated[
        str,
        typer.Option(
            "--gain", metavar="SHARE", help="Change the schedule only for one that is faster by this share."
        ),
    ] = "5%"
    budget: Annotated[
        str,
        typer.Option(
            "--budget",
            metavar="TIME",
            help="Time for measuring, 10s or 15m; links that do not fit are left for the next run.",
        ),
    ] = "10s"
    prom: PrometheusFile = None
    wait: Annotated[
        float,
        typer.Option(
            "--wait",
            metavar="SECONDS",
            min=0.0,
            help="Wait up to this long for a profile of yours on the same hosts, then exit 75.",
        ),
    ] = 0.0


def watch(options: WatchOptions) -> None:
    """Measure the links again, and report what became worse.

    One run, for a timer or cron. It measures the links within --budget and compares them with the baseline
    and with earlier runs; a link that seems worse is measured once more before it counts. Each change is
    reported with its cost for the schedule, the most expensive first, and with whether it is new or lasts. If
    another schedule is predicted to be faster by --gain on the network as it is now, DIR/current.json becomes
    that one, and again the given one when the network has recovered.

    Exit status 0: as good as the baseline. 1: something is worse, or a host is gone; it is printed even with
    -q. 75: another watch runs on the same DIR. If a run is interrupted, the files in DIR stay complete, and
    the next run continues. ccctl-watch(1) shows the files for systemd, cron and Slurm.
    """
    from ccctl.render.text import watch as text
    from ccctl.watch import once, opened

    if started_by_mpi():
        raise UsageError("watch starts its own ranks", hint="Run it outside mpirun, with --hosts.")
    deadline = Deadline(options.timeout)
    at_s, began_s = time.time(), time.monotonic()
    with prometheus.exposed(options.prom, "watch") as exposition, rescuing(lambda why: ""):
        request = _request(options)
        measure = _measuring(_world(options, request), request, deadline, options.wait)
        with opened(options.state) as folder:
            found = once.measure_and_judge(request, folder, measure, at_s)
            if not options.json:
                text.say_found(request, found)
            outcome = _decided(request, folder, found, deadline, at_s)
        prometheus.add_watch(exposition, found, outcome, request.baseline_s)
        current = Path(options.state) / folder.current_path.name
        if options.json:
            seconds = time.monotonic() - began_s
            console.summary(text.summary(request, found, outcome, current, seconds))
        else:
            text.say_decision(request, found, outcome, current)
        if found.drifted:
            raise FoundProblem(f"worse than {options.baseline}")
    console.next_step(f"ccctl show {Path(options.state) / folder.history_path.name}")


def _request(options: WatchOptions) -> WatchRequest:
    """Return what the options say.

    Raises UsageError if the schedule and the baseline differ in their number of ranks.
    """
    from ccctl.watch import WatchRequest, read_schedule

    baseline, budget = options.baseline, options.budget
    share = None if options.threshold == "auto" else _share(options.threshold, "--threshold")
    least_gain = 1 + _share(options.gain, "--gain")
    budget_s = parse_duration(budget, "--budget")
    if not _LEAST_BUDGET_S <= budget_s <= _MOST_BUDGET_S:
        raise UsageError(f"--budget: expected {_LEAST_BUDGET_S:g}s to {_MOST_BUDGET_S:g}s, found {budget}")
    profile, given = codec.read(baseline, "profile"), read_schedule(options.schedule)
    found, wanted = given.schedule.network.ranks, len(profile.body.ranks)
    if found != wanted:
        raise UsageError(
            f"--schedule {options.schedule}: it is for {found} ranks, --baseline {baseline} has {wanted}",
            hint=f"ccctl synth --network {baseline} makes one for these.",
        )
    request = WatchRequest(profile, given, share, least_gain, budget_s)
    # Predict before anything is measured, because this fails if the schedule uses a link that the baseline
    # lacks.
    console.detail(f"predicted on the baseline: {request.baseline_s:.6g} s")
    return request


def _share(text: str, option: str) -> float:
    """Return a share of one: 10% is 0.1; raises UsageError."""
    found = decimal(text.strip().removesuffix("%").strip()) if text.strip().endswith("%") else None
    if found is None or not 0 < found / 100 <= _MOST_SHARE:
        also = "auto, or " if option == "--threshold" else ""
        raise UsageError(
            f"{option}: expected {also}a share from above 0% to {_MOST_SHARE:.0%}, found {text!r}"
        )
    return found / 100


def _world(options: WatchOptions, request: WatchRequest) -> World:
    """Return the world to measure in, by default the hosts and ranks of the baseline.

    Raises UsageError if the number of ranks differs from the baseline's.
    """
    from collections import Counter

    entries = request.baseline.body.ranks
    slots = Counter(entry.host for entry in entries)
    if (options.ranks, options.hosts, options.hostfile) == (None, None, None):
        listed = ",".join(f"{host}:{count}" for host, count in slots.items())
        world = World(len(entries)) if len(slots) == 1 else World(None, listed)
    else:
        world = options.world()
    if (count := placed(world)[0]) != len(entries):
        raise UsageError(
            f"the baseline {request.baseline.source} has {len(entries)} ranks, the options name {count}",
            hint="Leave -n and --hosts out to measure where the baseline was measured.",
        )
    return world


def _measuring(world: World, request: WatchRequest, deadline: Deadline, wait_s: float) -> Measure:
    """Return a function that measures links in turn within a budget."""
    from probes.profiling import Effort

    on_gpus = request.baseline.body.transport == "cuda"

    def measure(look: LinkTurns) -> Profile:
        links = len(look.turns.src)
        effort = Effort(
            turns=look.turns,
            budget_s=look.budget_s,
            ports=False,
            # Suspects are measured again one at a time, so that no other traffic disturbs them.
            alone=look.again and links <= _MOST_ALONE,
            device="cuda" if on_gpus else "process",
            wait_s=wait_s,
        )
        label = (
            f"watch, {plural(links, 'suspect')} again" if look.again else f"watch, {plural(links, 'link')}"
        )
        return ProfileRun(effort, world, deadline.left_s(), label=label).result()

    return measure


def _decided(
    request: WatchRequest, folder: StateFolder, found: WatchFindings, deadline: Deadline, at_s: float
) -> WatchOutcome:
    from ccctl.watch import replan
    from synth.portfolio import cores

    with console.progress("synth", 1.0) as bar:
        return replan(request, folder, found, deadline, at_s, jobs=cores(), progress=Drawn(bar))
