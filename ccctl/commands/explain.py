"""`ccctl explain`: whether a bandwidth is normal, what limits it, and what logs of other tools show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated

import typer

from ccctl import console
from ccctl.arguments import (
    GeneralOptions,
    NetworkOptions,
    Percentage,
    TimeoutSeconds,
    collective_option,
    network_option,
    written_option,
)
from ccctl.artifacts import write_output
from ccctl.errors import FoundProblem, UsageError
from probes.base import decimal, parse_size, plural, quoted, some

if TYPE_CHECKING:
    from ccctl.artifacts import Artifact, Dumps, ForeignFiles
    from ccctl.render.text import Explained
    from exec.benchmark import JudgedRow, Report, RowChange
    from exec.benchmark.foreign import Evidence, Inspected, Recorded
    from probes.topology import Topology
    from synth.network import Network

__all__ = ["EXAMPLES", "explain"]

EXAMPLES = (
    ("ccctl explain nccl.log", "one host: the machine is known by its GPUs"),
    (
        "ccctl explain osu.txt --network switch:4 --bandwidth 10GB/s",
        "a table of osu_allreduce, which ran on the ranks of this network",
    ),
    (
        "ccctl explain nccl-inspector/ --network dgx-h100",
        "what NCCL's Inspector recorded of a job: the network, or waiting for a late rank?",
    ),
    (
        "ccctl explain flight/",
        "dumps of PyTorch's flight recorder, or of ncclras: which rank do the others wait for?",
    ),
    (
        "ccctl explain nccl-debug.log --network system.xml",
        "a log of NCCL_DEBUG=INFO: transports, NICs, rings, and what is wrong with them",
    ),
    (
        "ccctl explain dcgm-*.json",
        "dcgmi diag -j of several hosts: which GPU failed, and why?",
    ),
    ("ccctl explain hosts.log --network dgx-a100/4x200", "each host a DGX A100 with 4 NICs of 200G"),
    (
        "ccctl explain nccl.log --at-least 60% --junit explain.xml",
        "for CI: exit with 1 where the largest size reaches less of the bound",
    ),
    (
        "ccctl explain nccl.log --baseline old.log --markdown summary.md",
        "exit with 1 where it became slower than it was",
    ),
)

_MOST_NAMED = 16


def _share(text: str) -> float:
    """Return a share of one: 60% is 0.6; raises UsageError."""
    found = decimal(text.strip().removesuffix("%").strip(), 0.0, 100.0)
    if found is None:
        raise UsageError(f"--at-least: expected a percentage such as 80%, found {quoted(text)}")
    return found / 100


@dataclass(frozen=True)
class ExplainOptions(GeneralOptions, NetworkOptions):
    """The arguments and options of ``explain``."""

    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE…",
            help="Output of nccl-tests, rccl-tests or the OSU benchmarks (osu_allreduce …); JSON "
            "of nccl-tests -J; a report of bench; a file of NCCL's Inspector, ncclras or "
            "PyTorch's flight recorder; a log of NCCL_DEBUG=INFO; JSON of dcgmi diag -j, nvbandwidth -j, "
            "SuperBench or gcm. Several files of one job or cluster, or their folder; - reads stdin.",
        ),
    ]
    network: Annotated[
        str | None,
        network_option(
            "The network of the ranks: a profile, a topology, NCCL's XML, or a machine such "
            "as dgx-a100 or dgx-a100/4x200 (with 4 NICs of 200 Gbit/s), taken once for each "
            "host; or any network of ccctl synth. For a log of NCCL_DEBUG=INFO: a topology or NCCL's XML. "
            "[on one host: the machine with these GPUs]"
        ),
    ] = None
    collective: Annotated[
        str | None,
        collective_option(
            "The collective that was measured, if the file does not name it. [guessed from the columns]"
        ),
    ] = None
    at_least: Annotated[
        str | None,
        typer.Option(
            "--at-least",
            metavar="PERCENT",
            help="Exit 1 if a row that counts reaches less than this share of the bound.",
        ),
    ] = None
    from_size: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="SIZE",
            help="Count every row from this size on. [the largest size of each collective]",
        ),
    ] = None
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            metavar="FILE",
            help="Exit 1 if a row is slower than in this report or log by more than noise and --tolerance.",
        ),
    ] = None
    tolerance: Annotated[
        float,
        typer.Option(
            "--tolerance",
            metavar="PERCENT",
            click_type=Percentage(min=0.0, max=1e6),
            help="With --baseline: how much slower a row may be.",
        ),
    ] = 10.0
    synth: Annotated[
        bool, typer.Option("--synth", help="Also synthesize a schedule for each row that counts.")
    ] = False
    markdown: Annotated[
        str | None, written_option("--markdown", help="Write the table as Markdown; - is stdout.")
    ] = None
    junit: Annotated[
        str | None, written_option("--junit", help="Write a test case for each row; - is stdout.")
    ] = None
    profile: Annotated[
        str | None,
        written_option(
            "--profile",
            help="Write a profile from the times of single sends in a recording of NCCL's Inspector or the "
            "flight recorder, for --network of other commands. It has only the links of these sends.",
        ),
    ] = None
    timeout: TimeoutSeconds = None


def explain(options: ExplainOptions) -> None:
    """Judge measured bandwidths: what is possible, what limits them.

    Each row gets a verdict. The column "at most" is proven: no algorithm is faster unless switches do the
    sums (SHARP, NVLS). The columns ring, tree and direct are what NCCL's algorithms could carry over these
    links and ports by bytes alone, without start-up. A row is normal if it reaches two thirds of the slower
    one. Without --network the machine is recognized by its GPUs, if the report is of one host.

    From a recording of NCCL's Inspector it tells how long ranks waited for the last one, which is no fault of
    the network. From dumps of NCCL's RAS or PyTorch's flight recorder it names the ranks that the others wait
    for (exit 1). Wrong results are printed first (exit 1). --timeout limits the search of --synth.

    From a log of NCCL_DEBUG=INFO it tells the transports, NICs, rings, trees and settings, and what is wrong
    with them: sockets although there are NICs, host memory although there are NVLinks, GPU Direct RDMA that
    is off, hosts that differ. From files of dcgmi, nvbandwidth, SuperBench and gcm it names the parts that
    failed or are slower than the others. For a schedule it tells what limits it.

    A fault exits with 1, a remark does not. With a topology as --network, NICs and copy rates are compared
    with it.
    """
    from ccctl.artifacts import dumps_in, evidence_in, read_files, schedule_in

    if [options.markdown, options.junit].count("-") + options.json > 1:
        raise UsageError("--json, --markdown - and --junit - each want stdout for themselves")
    if options.profile == "-":
        raise UsageError("--profile -: stdout is for the rows", hint="Name a file: --profile passive.json.")
    files = read_files(options.paths)
    if (plan := schedule_in(files)) is not None:
        _explain_schedule(plan, json=options.json)
        return
    dumps = dumps_in(files)
    if dumps is None and (contents := evidence_in(files)):
        _explain_evidence(options, files.source, contents)
        return
    if options.profile is not None:
        _write_profile(files, options.profile, dumps)
    dump, timed = dumps or (None, None)
    if dump is not None:
        _tell_late(files.source, dump, timed, json=options.json)
        if timed is None or options.network is None or options.json:
            _judge_late(files.source, dump)
            return
    logged = _log_evidence(files)
    explained = _explained(options, files, timed)
    _tell(explained, logged, options)
    if dump is not None:
        _judge_late(files.source, dump)
    if explained.failures:
        raise FoundProblem(explained.failures)
    console.next_step(f"ccctl synth --network {options.network or explained.network}")


def _explain_schedule(read: Artifact, *, json: bool) -> None:
    """Tell what limits a schedule; a wrong one is refused with its findings."""
    from ccctl.arguments import refuse_unproven
    from ccctl.render.text import schedule as text
    from synth.check import check

    refuse_unproven(read.source, check(read.body))
    if json:
        console.summary(text.limits(read.body))
    else:
        text.draw_limits(read.body)


def _explain_evidence(options: ExplainOptions, source: str, contents: Mapping[str, bytes]) -> None:
    """Tell what checks, diagnostics and logs of NCCL found; raises FoundProblem for a fault."""
    from ccctl.render.text import evidence
    from exec.acceptance import evidence_of
    from exec.benchmark.foreign import is_nccl_debug, parse_nccl_debug

    given = {
        "--markdown": options.markdown,
        "--junit": options.junit,
        "--at-least": options.at_least,
        "--from": options.from_size,
        "--baseline": options.baseline,
        "--profile": options.profile,
    }
    if named := [name for name, value in given.items() if value is not None]:
        raise UsageError(f"{', '.join(named)}: for tables of a benchmark; {source} is a check or a log")
    logs = {name: content for name, content in contents.items() if is_nccl_debug(content)}
    log = parse_nccl_debug(logs) if logs else None
    found = evidence_of(contents, topology=_topology(options.network))
    explained = evidence.summary(source, found, log)
    (console.summary if options.json else evidence.draw)(explained)
    faults = [one for one in found if one.severity == "fault"]
    if faults:
        names = list(dict.fromkeys(name for fault in faults if (name := fault.host or fault.source)))
        shown = some(names, _MOST_NAMED)
        raise FoundProblem(f"{source}: {plural(len(faults), 'fault')}{f': {shown}' if shown else ''}")


def _topology(network: str | None) -> Topology | None:
    """Return the topology that --network names; None, with a note, where it names something else."""
    from ccctl.arguments import topology_in

    found = None if network is None else topology_in(network)
    if network is not None and found is None:
        console.note(
            f"--network {network}: not a topology, so GPUs and NICs are not compared with it; give "
            "topology.json of ccctl detect, or the XML that NCCL_TOPO_DUMP_FILE writes"
        )
    return found


def _log_evidence(files: ForeignFiles) -> list[Evidence]:
    """Return and print what NCCL's log finds wrong, if a benchmark's output has lines of the log."""
    from ccctl.artifacts import logs_in
    from exec.benchmark.foreign import parse_nccl_debug

    logs = logs_in(files)
    found = parse_nccl_debug(logs).findings() if logs else []
    for one in found[:_MOST_NAMED]:
        host = f"{one.host}: " if one.host else ""
        console.note(f"{files.source}: NCCL's log: {one.severity}: {host}{one.text}")
    return found


def _tell_late(source: str, found: Recorded, timed: Inspected | None, *, json: bool) -> None:
    from ccctl.render.text import dumps

    (console.summary if json else dumps.draw)(dumps.summary(source, found, timed))


def _judge_late(source: str, found: Recorded) -> None:
    """Raise FoundProblem if a rank holds up others."""
    if found.lags:
        ranks = sorted({lag.rank for lag in found.lags})
        hold = "holds" if len(ranks) == 1 else "hold"
        raise FoundProblem(
            f"{source}: {plural(len(ranks), 'rank')} {hold} others up: {', '.join(map(str, ranks[:16]))}"
        )


def _explained(options: ExplainOptions, files: ForeignFiles, timed: Inspected | None) -> Explained:
    """Return the report judged against its network; ``timed`` has the rows if dumps gave them."""
    from ccctl.artifacts import read_any, recorded_in
    from ccctl.render.text import Explained
    from exec.benchmark import judged, nics_of_a_host, with_hosts
    from synth.collective import kind_of

    source = files.source
    least = None if options.at_least is None else _share(options.at_least)
    declared = cache(partial(_declared, source, options))
    ranks = None if options.network is None else lambda: declared().ranks
    kind = None if options.collective is None else kind_of(options.collective)
    report, recorded = (timed.report, timed) if timed else recorded_in(files, ranks, kind)
    before = None
    if options.baseline is not None:
        before = read_any(options.baseline, "report", ranks=ranks, collective=kind).body
    for note in report.notes:
        console.note(f"{source}: {note}")
    try:
        on = _network_of(report, options) if report.hosts else declared()
    except UsageError as error:
        if wrong := report.wrong_results:
            raise FoundProblem([*wrong, error.message], hint=error.hint) from error
        raise
    on = with_hosts(on, report.hosts)
    with console.progress("bounds", len(report.rows)) as bar:
        rows = judged(report, on, bar.update)
    if not rows:
        raise UsageError(f"{source}: it has no row with a collective, a size and a time")
    counted = _counted(rows, options.from_size)
    return Explained(
        source=source,
        network=on.name,
        host_nics=nics_of_a_host(on),
        report=report,
        rows=tuple(rows),
        counted=counted,
        least=least,
        made_s=_synthesized(on, rows, counted, options.timeout) if options.synth else {},
        baseline=_compared(before, report, options.tolerance / 100, options.baseline),
        recorded=recorded,
    )


def _network_of(report: Report, options: ExplainOptions) -> Network:
    """Return the network of a report that says on which hosts it ran."""
    from ccctl.arguments import network_of

    named = (options.network, options.alpha, options.bandwidth)
    return network_of(report, *named, unwind=options.unwind, failed=options.without)


def _write_profile(files: ForeignFiles, output: str, dumps: Dumps | None) -> None:
    """Write a profile of the timed sends between two ranks; raises UsageError where there are none."""
    from ccctl.artifacts import codec, sent_in

    sent, library = sent_in(files) if dumps is None else (dumps[0].sent, dumps[0].tool)
    found = sent.profile(library)
    if found is None:
        raise UsageError(f"--profile: {files.source} has no timed message between two ranks")
    codec.write(output, "profile", found)
    console.note(f"{output}: {plural(len(found.links.src), 'link')} that carried timed messages")


def _declared(source: str, options: ExplainOptions) -> Network:
    """Return the network that --network names, for a benchmark that does not say on which hosts it ran.

    Raises UsageError without --network.
    """
    from ccctl.arguments import load_network

    if options.network is None:
        raise UsageError(
            f"{source} does not say on which hosts it ran: expected --network, which connects the ranks"
        )
    named = (options.network, options.alpha, options.bandwidth)
    return load_network(*named, unwind=options.unwind, failed=options.without)[0]


def _counted(rows: list[JudgedRow], from_size: str | None) -> tuple[int, ...]:
    """Return the indices of the rows that count; raises UsageError if there are none."""
    from exec.benchmark import largest

    if from_size is None:
        most = {id(judged) for judged in largest(rows)}
        return tuple(at for at, judged in enumerate(rows) if id(judged) in most)
    least_bytes = parse_size(from_size, "--from")
    found = tuple(at for at, judged in enumerate(rows) if judged.row.size_bytes >= least_bytes)
    if not found:
        most_bytes = max(judged.row.size_bytes for judged in rows)
        raise UsageError(f"--from {from_size}: the largest row has {most_bytes} bytes")
    return found


def _synthesized(
    on: Network, rows: list[JudgedRow], counted: tuple[int, ...], timeout: float | None
) -> dict[int, float]:
    """Return a schedule's time for each row that counts; rows that differ only in type share a time."""
    from exec.benchmark import synthesized_s
    from synth.portfolio import warm

    warm(on.ranks)
    known: dict[tuple[str, int, int], float] = {}
    with console.progress("synth", len(counted)) as bar:
        for done, at in enumerate(counted):
            row = rows[at].row
            bar.update(done, f"{row.collective} of {row.size_bytes} bytes")
            key = (row.collective, row.size_bytes, row.root)
            if key not in known:
                known[key] = synthesized_s(on, row, (timeout or 30.0) / len(counted))
    return {at: known[rows[at].row.collective, rows[at].row.size_bytes, rows[at].row.root] for at in counted}


def _compared(
    before: Report | None, now: Report, tolerance: float, path: str | None
) -> tuple[RowChange, ...]:
    from exec.benchmark import compare

    if before is None:
        return ()
    found = tuple(compare(before, now, tolerance))
    if not found:
        raise UsageError(f"--baseline {path}: it has no row of the same collective, size, type and operator")
    return found


def _tell(explained: Explained, logged: list[Evidence], options: ExplainOptions) -> None:
    from ccctl.render import junit as document
    from ccctl.render.text import draw_changes, evidence

    if options.markdown is not None:
        write_output(options.markdown, explained.markdown().encode())
    if options.junit is not None:
        write_output(options.junit, document(f"ccctl explain {explained.source}", explained.cases()))
    if options.json:
        console.summary({**explained.summary(), "evidence": evidence.listed(logged)})
    elif "-" not in (options.markdown, options.junit):
        explained.draw()
        if explained.baseline:
            draw_changes(explained.baseline)
