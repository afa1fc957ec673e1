"""`ccctl profile`: what each link costs."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from ccctl import console
from ccctl.arguments import (
    GeneralOptions,
    MeasuredDevice,
    Output,
    PrometheusFile,
    Spec,
    WiringPlan,
    WorldOptions,
    read_or_described,
)
from ccctl.artifacts import codec, read_input
from ccctl.errors import CannotWriteError, FoundProblem, UsageError
from ccctl.host_search import look_everywhere
from ccctl.launching import by_default, placed, started_by_mpi
from ccctl.render import prometheus
from ccctl.rescue import rescuing
from ccctl.runs import ProfileRun
from probes.base import parse_duration, parse_size, whole

if TYPE_CHECKING:
    from ccctl.artifacts import Artifact
    from ccctl.launching import World
    from probes.link_costs import Profile
    from probes.localization import Bought, FabricPlan
    from probes.profiling import Drift, Effort
    from probes.sampling import WantedPairs
    from probes.topology import Topology

__all__ = ["EXAMPLES", "LIVE", "profile"]

LIVE = "live"

EXAMPLES = (
    ("ccctl profile -n 4 -o profile.json", "measure the links between four ranks of this host"),
    ("ccctl profile -n 4 --quick --json", "a quick look, as one object"),
    ("ccctl profile -n 4 -o - | ccctl show -", "draw the matrices without writing a file"),
    (
        "ccctl profile -n 4 --budget 2 --sizes 256K:4M",
        "what fits into two seconds, with messages of these sizes",
    ),
    (
        "ccctl profile -n 4 --quick --topology live",
        "detect NICs first; of NICs that are alike, measure only a sample",
    ),
    ("ccctl profile --from profile.json --baseline profile.json", "compare two files without measuring"),
    (
        "ccctl profile --from profile.json --spec 8x400",
        "name the parts that are slower than what was bought, even if all links are",
    ),
    ("ccctl profile -n 4 --quick --expect 100MB/s", "exit with 1 where a link carries less"),
    (
        "ccctl profile -n 4 --quick --prometheus links.prom",
        "leave the figures where Prometheus' node exporter finds them",
    ),
)


@dataclass(frozen=True)
class ProfileOptions(GeneralOptions, WorldOptions):
    """The arguments and options of ``profile``."""

    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Measure with fewer passes, and only links between ranks 1, 2, 4, … apart."
        ),
    ] = False
    pairs: Annotated[
        str | None,
        typer.Option(
            "--pairs",
            metavar="FILE",
            help="Measure only these links: SRC DST per line, as ranks or hosts; or ROUND SRC DST, and "
            "those of one round are measured at the same time.",
        ),
    ] = None
    sizes: Annotated[
        str | None,
        typer.Option("--sizes", metavar="FROM:TO", help="Sizes of messages, each twice the last: 32K:16M."),
    ] = None
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            metavar="TIME",
            help="Measure what fits into this time, and say what was left out: 15m, or seconds.",
        ),
    ] = None
    ports: Annotated[
        bool | None,
        typer.Option(
            "--ports/--no-ports",
            help="Test which links share a port. [if links slow each other down, or hosts have several "
            "ranks]",
        ),
    ] = None
    wait: Annotated[
        float,
        typer.Option(
            "--wait",
            metavar="SECONDS",
            min=0.0,
            help="Wait up to this long for another profile of yours on the same hosts, then exit 75.",
        ),
    ] = 0.0
    device: MeasuredDevice = "auto"
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="FILE", help="Read this profile instead of measuring; - reads stdin."),
    ] = None
    topology: Annotated[
        str | None,
        typer.Option(
            "--topology",
            metavar="FILE",
            help="Use the NICs of this topology: all NICs of a host at once, and one by one a sample of "
            "those that are alike. The word live reads the topology from each host instead of a file.",
        ),
    ] = None
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            metavar="FILE",
            help="Print what changed since this profile: exit 1 if anything became worse.",
        ),
    ] = None
    spec: Spec = None
    plan: WiringPlan = None
    expect: Annotated[
        str | None,
        typer.Option(
            "--expect",
            metavar="RATE",
            help="Exit 1 if a link carries less: 48GB/s of payload, or the line rate 400Gbit/s, from which "
            "the headers are subtracted, as with --spec.",
        ),
    ] = None
    prom: PrometheusFile = None
    output: Output = None


def profile(options: ProfileOptions) -> None:
    """Measure latency and bandwidth of each link between ranks.

    Starts the ranks over MPI, or is one of them inside mpirun or srun. Alpha, the latency, comes from
    ping-pong; beta, the seconds per byte, from how far apart messages
    arrive that were sent back to back. Slow links and
    hosts are measured again, alone, before they are reported. Findings name the fewest parts (hosts, NICs,
    pairs of hosts, trunks) that explain all rates, latencies and losses. Normal is what most parts reach, or
    what --spec says was bought; --plan tells the racks and rails. A finding alone leaves the exit status 0:
    --expect, --baseline and hosts that cannot be reached set it to 1.

    If a lost rank, a signal or --timeout ends it, the links measured until then are written, and the profile
    says so. Hosts that cannot be reached are named and the others measured. Two profiles of one user
    on the same hosts do not run at once: the second exits with 75, or waits with --wait.

    With --topology it measures by hosts, all NICs at once, and of NICs that are declared alike only a sample,
    whose spread is checked. On a terminal it shows the slowest and the newest links while it measures, and
    which ranks wait for which.
    """
    from ccctl.render.text import profile as text
    from exec.acceptance import payload_rate
    from probes.profiling import below_expectation, compare

    with prometheus.exposed(options.prom, "profile") as exposition:
        expected = payload_rate(options.expect, "--expect") if options.expect is not None else None
        before = codec.read(options.baseline, "profile") if options.baseline is not None else None
        bought, plan = _offer(options)
        if options.source is None:
            found, inputs, problem = _measured(options, exposition)
        else:
            found, inputs, problem = _read(options, options.source), {}, ""
        if bought is not None or plan is not None:
            found = _with_offer(found, bought, plan)
        prometheus.add_profile(exposition, found)
        drift = compare(before.body, found) if before else None
        if before and options.baseline:
            inputs[options.baseline] = before.sha256
        if options.output is not None:
            with _kept_elsewhere(found, inputs, measured=options.source is None):
                codec.write(options.output, "profile", found, inputs)
        short = below_expectation(found, expected) if expected is not None else ""
        if bought is not None:
            text.say_offer(found, bought)
        _tell(found, options.output, options.json, drift, before, short)
        if drift:
            exposition.add(
                "ccctl_profile_drifts", "How much got worse since the baseline.", len(drift.findings)
            )
        worse = f"worse than {options.baseline}" if drift and drift.findings else ""
        slow = f"links carry less than {options.expect}" if short else ""
        if problem or worse or slow:
            raise FoundProblem("; ".join(filter(None, (problem, worse, slow))))
    console.next_with(options.output, "ccctl synth --network {} --collective all_reduce", "profile.json")


def _offer(options: ProfileOptions) -> tuple[Bought | None, FabricPlan | None]:
    """Return what was bought, and the plan of the fabric; both are read before anything is measured."""
    from exec.acceptance import bought, read_plan

    spec = None if options.spec is None else bought(options.spec)
    return spec, None if options.plan is None else read_plan(*read_input(options.plan))


def _with_offer(found: Profile, bought: Bought | None, plan: FabricPlan | None) -> Profile:
    """Return the profile with the faults that the offer and the plan show."""
    from probes.profiling import faults_of, with_faults

    return with_faults(found, faults_of(found, bought, plan), bought=bought is not None)


def _read(options: ProfileOptions, source: str) -> Profile:
    """Return the profile of a file; raises UsageError where options are about measuring."""
    if options.ranks is not None or not by_default(options.hosts) or options.hostfile is not None:
        raise UsageError(f"--from {source} measures nothing: leave -n, --hosts and --hostfile out")
    if options.topology is not None:
        raise UsageError(f"--topology is for measuring, --from {source} measures nothing")
    found: Profile = codec.read(source, "profile").body
    return found


def _measured(
    options: ProfileOptions, exposition: prometheus.Exposition
) -> tuple[Profile, dict[str, str], str]:
    """Return (the profile, digests of what was read for it, what went wrong).

    If the measurement is cut short, the links measured so far are written before the error propagates.
    """
    world, output = options.world(), options.output
    declared, digests = _declared(options.topology, world, options.timeout)
    _refuse_few(world)
    effort = replace(_effort(options), topology=declared, topology_name=options.topology or "")
    _refuse_strangers(effort, world)
    measurement = ProfileRun(effort, world, options.timeout)

    def rescue(why: str) -> str:
        partial = measurement.partial(why)
        if partial is None:
            return ""
        prometheus.add_profile(exposition, partial)
        if output is not None:
            with _kept_elsewhere(partial, None, measured=True):
                codec.write(output, "profile", partial)
        if output is None or (options.json and output != "-"):
            _tell(partial, None, options.json)
        where = "what was printed" if output in (None, "-") else output
        return f"{where} holds the {len(partial.links.src)} links that were measured until then."

    with rescuing(rescue):
        return measurement.result(), digests, measurement.problem()


@contextlib.contextmanager
def _kept_elsewhere(found: Profile, inputs: dict[str, str] | None, *, measured: bool) -> Iterator[None]:
    """Write a ``measured`` profile to the temporary folder if the block cannot write it."""
    try:
        yield
    except CannotWriteError as error:
        if measured:
            error.hint = _rescue_copy(found, inputs) or error.hint
        raise


def _rescue_copy(found: Profile, inputs: dict[str, str] | None) -> str:
    """Write ``found`` to a new file and return a sentence with its name; "" if no file can be written."""
    for folder in dict.fromkeys((tempfile.gettempdir(), "/dev/shm", str(Path.cwd()))):
        try:
            handle, name = tempfile.mkstemp(dir=folder, prefix="ccctl-profile-", suffix=".json")
            os.close(handle)
        except OSError:
            continue
        try:
            codec.write(name, "profile", found, inputs)
        except CannotWriteError:
            Path(name).unlink(missing_ok=True)
            continue
        return f"What was measured is in {name}."
    return ""


def _effort(options: ProfileOptions) -> Effort:
    from typing import get_args

    from probes.live import DeviceChoice
    from probes.profiling import Effort

    if options.device not in get_args(DeviceChoice):
        raise UsageError(f"--device: expected {', '.join(get_args(DeviceChoice))}, found {options.device}")
    pairs, sizes, device = _pairs(options.pairs), _sizes(options.sizes), cast(DeviceChoice, options.device)
    budget_s = None if options.budget is None else parse_duration(options.budget, "--budget")
    return Effort(options.quick, pairs, sizes, budget_s, options.ports, device, options.wait)


def _declared(
    name: str | None, world: World, timeout_s: float | None
) -> tuple[Topology | None, dict[str, str]]:
    """Return the topology of that name, with its digest; ``live`` is what the detector of each host finds."""
    from probes.detection import DetectRequest

    if name is None:
        return None, {}
    if name == LIVE:
        return look_everywhere(world, DetectRequest(), timeout_s), {}
    artifact = read_or_described(name, "topology")
    return artifact.body, {name: artifact.sha256}


def _pairs(path: str | None) -> WantedPairs | None:
    from probes.files import read_text
    from probes.sampling import parse_pairs

    if path is None:
        return None
    return parse_pairs(read_text(path), path)


def _refuse_few(world: World) -> None:
    """Raise UsageError where there is no link between the ranks of ``world``."""
    if not started_by_mpi() and (count := placed(world)[0]) < 2:
        raise UsageError(f"-n {count}: a profile measures links between ranks: expected at least 2")


def _refuse_strangers(effort: Effort, world: World) -> None:
    """Raise DataError where --pairs has numbers of ranks beyond those of ``world``.

    Names of hosts are not checked here, because they are known only once ranks have started.
    """
    from probes.sampling import Place, WantedPairs, resolve

    if effort.pairs is None or started_by_mpi():
        return
    numbered = [line for line in effort.pairs.lines if None not in (whole(line.src), whole(line.dst))]
    here = [Place(str(rank), 1) for rank in range(placed(world)[0])]
    resolve(WantedPairs(effort.pairs.source, tuple(numbered)), here)


def _sizes(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    first, colon, last = text.partition(":")
    size, most = parse_size(first, "--sizes"), parse_size(last if colon else first, "--sizes")
    if size > most or most > 1 << 25:
        raise UsageError(f"--sizes: expected FROM:TO with FROM ≤ TO ≤ 32M, found {text}")
    found = [size]
    while 2 * found[-1] <= most:
        found.append(2 * found[-1])
    return tuple(found)


def _tell(
    found: Profile,
    output: str | None,
    json: bool,
    drift: Drift | None = None,
    before: Artifact | None = None,
    short: str = "",
) -> None:
    from ccctl.render.text import profile as text, say

    if output == "-":
        return
    if json:
        values = text.summary(found, drift)
        console.summary({**values, "findings": [*filter(None, (short,)), *values["findings"]]})
        return
    if output is None:
        text.draw(found)
    else:
        say(found, output)
    with console.spoken(bool(short)):
        if short:
            console.data(f"finding: {short}")
    if drift and before:
        with console.spoken(bool(drift.findings)):
            text.draw_drift(drift, before, found)
