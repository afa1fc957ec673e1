"""`ccctl accept`: test a cluster against what was bought; name faulty parts and their costs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccctl import console
from ccctl.arguments import MOST_RANKS, GeneralOptions, MeasuredDevice, Spec, WiringPlan, WorldOptions
from ccctl.artifacts import codec, is_folder, read_input
from ccctl.errors import FoundProblem, UndecidedError, UsageError
from ccctl.launching import placed, started_by_mpi
from probes.base import parse_duration, parse_size

if TYPE_CHECKING:
    from ccctl.acceptance import AcceptanceFolder, AcceptanceRequest
    from exec.acceptance import Certificate, Changes, Terms

__all__ = ["EXAMPLES", "accept"]

EXAMPLES = (
    ("ccctl accept -n 4", "test this host with four ranks"),
    (
        "ccctl accept -n 2 --spec 100Mbit/s -o accepted",
        "against what was bought; the folder gets the page, the certificate and all files",
    ),
    ("ccctl accept -n 2 --budget 30s --json", "what fits into half a minute, as one object"),
    (
        "ccctl accept -n 2 --since accepted -o week2",
        "the weekly check: what changed since the last acceptance",
    ),
)


@dataclass(frozen=True)
class AcceptOptions(GeneralOptions, WorldOptions):
    """The arguments and options of ``accept``."""

    spec: Spec = None
    plan: WiringPlan = None
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            metavar="TIME",
            help="Measure the links and collectives that fit into this time, and say what was left out: 15m, "
            "or seconds. A larger one measures links longer; without it, they are measured briefly. "
            "Starting ranks and looking at hosts is never cut short.",
        ),
    ] = None
    spares: Annotated[
        int,
        typer.Option(
            "--spares",
            metavar="N",
            min=0,
            max=MOST_RANKS,
            help="Find the N hosts that are best left out, and the time without them.",
        ),
    ] = 0
    sizes: Annotated[
        list[str] | None,
        typer.Option(
            "--size",
            metavar="SIZES",
            help="Sizes of the collectives: 64K,64M; may be repeated. Costs are told for the largest. "
            "[a small one, and one that takes a fraction of a second]",
        ),
    ] = None
    evidence: Annotated[
        list[str] | None,
        typer.Option(
            "--evidence",
            metavar="FILE",
            help="Results of other tools that count as evidence: dcgmi diag -j, nvbandwidth -j, SuperBench, "
            "gcm, a log of NCCL_DEBUG=INFO.",
        ),
    ] = None
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="FOLDER", help="Also say what changed since this earlier acceptance."
        ),
    ] = None
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the interrupted acceptance in the folder of -o.")
    ] = False
    device: MeasuredDevice = "auto"
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FOLDER",
            help="Write the measurements, the certificate, the page and the files for other tools there.",
        ),
    ] = None


def accept(options: AcceptOptions) -> None:
    """Test a cluster, and name the culprits with what each costs.

    Three stages: the hosts (versions, settings, GPUs, NICs, the kernel's log), the links between all ranks,
    and all_reduce and all_to_all on all ranks by ccctl and by the library. Every fault is named with its
    evidence, its cost for a collective, and what to do. Nothing on the hosts is changed. On a cluster:
    ccctl accept --hosts 'gpu[001-064]:8' --spec dgx-h100/8x400 --spares 2 -o accepted

    The verdict is accepted, accepted with remarks, refused, or undecided. Exit status 0 if accepted, 1 if
    refused, and 75 if undecided, as when the budget was too small or no collective could run.

    Costs are computed from the measured links. Each line names the schedule or the library's algorithm that
    its cost is for.

    With -o, the folder gets index.html (the page to look at first), certificate.json (ccctl verify computes
    it again), the measured artifacts, junit.xml, ctrf.json, drain.sh (for Slurm), conditions.sh (for
    Kubernetes), accept.prom, and for each kind of host the environment that its libraries need. An
    interrupted acceptance goes on with --resume.
    """
    from ccctl.acceptance import AcceptanceRun, opened, write_outputs
    from exec.acceptance import changes

    before = _earlier(options.since)
    terms, kept = _terms(options)
    request = _request(options, terms)
    with opened(options.output) as folder:
        run = AcceptanceRun(request, folder)
        if options.resume:
            run.resume()
        else:
            _refuse_unfinished(folder, options.output)
            folder.clear()
        for name, content in kept.items():
            folder.keep(name, content)
        run.measure()
        found = _judged(run, folder, terms, options)
        changed = None if before is None else changes(before, found)
        written = write_outputs(folder, found, changed) if options.output is not None else ()
        _tell(found, changed, written, options)
    if found.verdict == "refused":
        raise FoundProblem(f"refused: {found.reason}")
    if found.verdict == "undecided":
        raise UndecidedError(f"undecided: {found.reason}", hint=_more_time(options.budget))
    if options.output is not None:
        console.next_step(f"ccctl verify {Path(options.output) / 'certificate.json'}")


def _more_time(budget: str | None) -> str:
    """Return a hint on how to have the links measured longer."""
    if budget is not None:
        return f"--budget {budget} was too short: give it more time."
    return "Without --budget each link was measured briefly; --budget 60s measures them longer."


def _earlier(since: str | None) -> Certificate | None:
    """Return the certificate of an earlier acceptance, by its folder or its file."""
    if since is None:
        return None
    path = str(Path(since) / "certificate.json") if is_folder(since) else since
    found: Certificate = codec.read(path, "certificate").body
    return found


def _terms(options: AcceptOptions) -> tuple[Terms, dict[str, bytes]]:
    """Return the terms, and the files to keep beside the certificate; all are read before anything runs."""
    from exec.acceptance import Terms, bought, evidence_of, read_plan

    kept: dict[str, bytes] = {}
    plan = None
    if options.plan is not None:
        content, source = read_input(options.plan)
        plan = read_plan(content, source)
        kept[f"plan{Path(source).suffix or '.txt'}"] = content
    for number, path in enumerate(options.evidence or ()):
        content, source = read_input(path)
        evidence_of({source: content})
        kept[f"evidence/{number}-{Path(source).name}"] = content
    spec = None if options.spec is None else bought(options.spec)
    return Terms(spec, plan, options.spares), kept


def _request(options: AcceptOptions, terms: Terms) -> AcceptanceRequest:
    from ccctl.acceptance import AcceptanceRequest

    world = options.world()
    if started_by_mpi():
        raise UsageError(
            "ccctl accept starts ranks several times: run it outside mpirun and srun",
            hint="Give it --hosts, or -n for this host.",
        )
    if (ranks := placed(world)[0]) < 2:
        raise UsageError(
            f"an acceptance tests the links between ranks: expected at least 2, found {ranks}",
            hint="ccctl accept -n 4 tests this host, --hosts 'gpu[001-064]:8' a cluster.",
        )
    hosts = {entry.host for entry in placed(world)[1]}
    if terms.bought is not None and terms.bought.inside_bytes_per_s is None and len(hosts) < 2:
        console.doubt(f"--spec {options.spec}: nothing is judged by it, as no link leads to another host")
    if options.resume and options.output is None:
        raise UsageError("--resume goes on with the acceptance in a folder: name it with -o")
    return AcceptanceRequest(
        world,
        terms,
        _sizes(options.sizes),
        None if options.budget is None else parse_duration(options.budget, "--budget"),
        options.timeout,
        options.device,
    )


def _sizes(texts: list[str] | None) -> tuple[int, ...]:
    """Return the sizes of all ``--size``, each once, the smallest first."""
    parts = (part for text in texts or () for part in text.split(","))
    return tuple(sorted({parse_size(part.strip(), "--size") for part in parts}))


def _refuse_unfinished(folder: AcceptanceFolder, output: str | None) -> None:
    """Raise UsageError if the folder has an interrupted acceptance, whose measurements would be lost."""
    found = folder.certificate()
    if found is not None and not all(stage.done for stage in found.stages):
        raise UsageError(
            f"-o {output}: an unfinished acceptance is there",
            hint="--resume goes on with it; or name another folder, or remove this one.",
        )


def _judged(run: Any, folder: AcceptanceFolder, terms: Terms, options: AcceptOptions) -> Certificate:
    """Judge the measurements, write the certificate into the folder, and return it."""
    from ccctl.acceptance import cost_size, measured_in
    from exec.acceptance import judge

    console.note("verdict: looking for the fewest faults that explain the measurements")
    measured = measured_in(folder)
    if measured.profile is not None:
        size_bytes = cost_size(run.request, measured.profile, measured.report)
        terms = replace(terms, size_bytes=size_bytes)
    found = judge(measured, terms, run.stages(), run.skipped)
    found = replace(found, plan=options.plan or "", started=run.started)
    folder.write_certificate(found)
    return folder.certificate() or found


def _tell(
    found: Certificate, changed: Changes | None, written: tuple[str, ...], options: AcceptOptions
) -> None:
    from ccctl.render.text import acceptance as text

    if options.json:
        console.summary(text.summary(found, changed))
    else:
        with console.spoken(found.verdict == "refused"):
            text.draw(found, changed, written)
