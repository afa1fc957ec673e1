"""`ccctl detect`: what is connected to what."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ccctl import console
from ccctl.arguments import GeneralOptions, Output, Seed, WorldOptions, refuse_unknown
from ccctl.artifacts import codec, write_atomically, write_output
from ccctl.errors import CannotWriteError, FoundProblem, UsageError
from ccctl.launching import World, by_default, started_by_mpi
from probes.base import plural

if TYPE_CHECKING:
    from probes.detection import DetectRequest
    from probes.diff import Comparison
    from probes.paths import Explanation
    from probes.topology import Topology

__all__ = ["EXAMPLES", "detect"]

EXAMPLES = (
    ("ccctl detect", "draw this machine: PCI tree, NUMA nodes, GPUs, NICs, and who reaches whom"),
    ("ccctl detect -o topology.json", "keep what was found"),
    ("ccctl detect --from nccl-topo.xml --json", "count what a file of NCCL or RCCL describes"),
    ("ccctl detect --from topo.txt", "read the matrix that nvidia-smi topo -m printed"),
    ("ccctl detect --from gpus.xml --from topo.txt", "join nvidia-smi -q -x and topo -m of one machine"),
    ("ccctl detect --live --from nccl-topo.xml", "look where a file and this machine disagree"),
    ("ccctl detect --record machine", "keep what detection reads here, to report a wrong topology"),
    ("ccctl detect --from topology.json --why NIC0 NIC0", "explain the way between two devices"),
    ("ccctl detect --from nccl-topo.xml --export nccl-xml mine.xml", "write a file for NCCL_TOPO_FILE"),
    (
        "ccctl detect --declared system.xml profile.json --export nccl-xml fixed.xml",
        "compare a topology with what was measured, and write it corrected (exit 1 where it is wrong)",
    ),
    ("ccctl detect --active", "probe actively, too; what cannot be probed is listed with its reason"),
    ("ccctl detect --diff topology.json", "print what differs from what was kept (exit 1)"),
)
# The number of ranks in the command that is suggested next on a machine with fewer than two GPUs.
_PROCESSES = 4
_LOST = ("host-missing", "host-failed")
_FORMATS = ("nccl-xml",)


@dataclass(frozen=True)
class DetectOptions(GeneralOptions, WorldOptions):
    """The arguments and options of ``detect``."""

    files: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Read a file instead of this machine: a topology.json, a topology XML of NCCL or "
            "RCCL, the text of nvidia-smi topo -m or -p2p, nvidia-smi -q -x, rocm-smi --showtopo or "
            "amd-smi topology (text or --json), hwloc's XML, or a folder of --record; - reads stdin. "
            "Several files of one machine are merged; files of other machines add hosts.",
        ),
    ] = None
    live: Annotated[
        bool,
        typer.Option(
            "--live", help="With --from: look at this machine, too, and report where the two disagree."
        ),
    ] = False
    record: Annotated[
        str | None,
        typer.Option(
            "--record",
            metavar="DIR",
            help="Write all that detection reads on this machine to DIR, to send or to read with --from DIR.",
        ),
    ] = None
    why: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--why",
            metavar="A B",
            help="Explain the path between two devices: GPU0, NIC1, mlx5_0, a bus id, gpu01:GPU0.",
        ),
    ] = None
    diff: Annotated[
        str | None,
        typer.Option(
            "--diff",
            metavar="FILE",
            help="Compare with a topology.json or a file of another tool: exit 1 if they differ.",
        ),
    ] = None
    declared: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--declared",
            metavar="FILE PROFILE",
            help="Compare a topology (any file that --from takes) with a measured profile of the "
            "same machines: exit 1 if they contradict each other. -o and --export then write the "
            "topology with declared rates replaced by measured ones.",
        ),
    ] = None
    export: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--export",
            metavar="FORMAT FILE",
            help="Write the topology for another tool: nccl-xml FILE writes a file for "
            "NCCL_TOPO_FILE; - is stdout.",
        ),
    ] = None
    active: Annotated[
        bool,
        typer.Option(
            "--active",
            help="Also use devices two at a time: which GPUs and NICs slow each other down, because they "
            "share a PCIe switch, and each NIC's NUMA node.",
        ),
    ] = False
    seed: Seed = 0
    output: Output = None

    @property
    def printed(self) -> bool:
        """Whether an artifact goes to stdout."""
        return "-" in (self.output, self.export and self.export[1])

    @property
    def written(self) -> bool:
        """Whether the topology is written."""
        return self.output is not None or self.export is not None


def detect(options: DetectOptions) -> None:
    """Find the GPUs, NICs, NVLinks and PCI tree of machines.

    Reads this machine, with --hosts or inside mpirun each host, or files of other tools. A NIC is one network
    port; software interfaces are listed apart. What a source does not state is printed as a note and is no
    failure. Without GPUs, ranks are processes.
    """
    from ccctl.render.text import topology as text

    if options.record is not None:
        _record(Path(options.record))
    if options.declared is not None:
        _compare(options, options.declared)
        return
    found = _found(options)
    why = None if options.why is None else _explained(found, options.why)
    comparison = None if options.diff is None else _compared(found, options.diff)
    if options.output is not None:
        codec.write(options.output, "topology", found)
    if options.export is not None:
        _export(found, options.export)
    if options.json and not options.printed:
        console.summary(text.summary(found, why, comparison))
    if options.json or options.printed or (options.quiet and options.written):
        text.remarks(found)
    else:
        _draw(found, why, comparison, options.diff or "")
    _judge(found, comparison, options.diff or "")
    console.next_step(_next(found, options.files, options.output))


def _compare(options: DetectOptions, declared: tuple[str, str]) -> None:
    """Write the corrected topology, print contradictions; raises FoundProblem if there are any."""
    from ccctl.arguments import read_topologies
    from ccctl.render.text import declared as comparison

    looking = (options.files, options.live, options.active, options.why, options.diff)
    if any(looking) or options.world() != World():
        raise UsageError("--declared compares two files: beside it only -o, --export and --json")
    topology = read_topologies([declared[0]])
    found = comparison.compare(declared[0], topology, codec.read(declared[1], "profile"))
    if options.output is not None:
        codec.write(options.output, "topology", found.topology)
    if options.export is not None:
        _export(found.topology, options.export)
    if options.json and not options.printed:
        console.summary(found.summary)
    elif not options.json:
        found.draw()
    found.judge(written=options.written)


def _explained(found: Topology, why: tuple[str, str]) -> Explanation:
    """Return the explained path between two devices; raises UsageError for unknown devices."""
    from probes.paths import explain, load, pair_named

    return explain(*pair_named(found, *why), load())


def _compared(found: Topology, diff: str) -> Comparison:
    from ccctl.arguments import read_topologies
    from probes.diff import compare

    return compare(read_topologies([diff]), found)


def _draw(found: Topology, why: Explanation | None, comparison: Comparison | None, diff: str) -> None:
    """Print the path and the differences that were asked for; the topology if neither was."""
    from ccctl.render.text import topology as text

    if why is not None:
        text.draw_path(why)
    if comparison is not None:
        with console.spoken(bool(comparison.differences)):
            text.draw_differences(comparison, found, diff)
    if why is None and comparison is None:
        text.draw(found)


def _judge(found: Topology, comparison: Comparison | None, diff: str) -> None:
    """Raise FoundProblem if hosts are missing or something differs."""
    lost = [finding.where for finding in found.findings if finding.what in _LOST]
    if lost:
        from exec.launcher import fold

        raise FoundProblem(
            f"{fold(lost)} did not answer; {len(found.hosts)} of {len(lost) + len(found.hosts)} hosts did"
        )
    if comparison is not None and comparison.differences:
        raise FoundProblem(f"{plural(len(comparison.differences), 'difference')} from {diff}")


def _export(found: Topology, wanted: tuple[str, str]) -> None:
    """Write one host in the format of another tool; raises UsageError or DataError if impossible."""
    from exec.launcher import fold
    from probes.diff import fold_hosts
    from probes.nccl import export

    kind, path = wanted
    refuse_unknown("--export", kind, _FORMATS)
    groups = fold_hosts(found)
    if len(groups) != 1:
        raise UsageError(
            f"NCCL's file describes one host, and these {len(found.hosts)} are of {len(groups)} kinds",
            hint="Export each kind apart: ccctl detect --hosts HOST --export nccl-xml FILE.",
        )
    done = export(groups[0].hosts[0])
    for warning in done.warnings:
        console.warn(warning)
    write_output(path, done.content)
    if path != "-":
        same = f", the same for all of {fold(groups[0].names)}" if len(found.hosts) > 1 else ""
        console.note(f"{path}: {done.nodes} nodes{same}; use it as NCCL_TOPO_FILE={path}")


def _found(options: DetectOptions) -> Topology:
    """Return the topology from files, from every host of the world, or from this machine."""
    from ccctl.arguments import read_topologies
    from probes.detection import DetectRequest

    world, request = options.world(), DetectRequest(options.active, options.seed)
    if options.files:
        if options.active:
            raise UsageError("--active probes machines, --from reads files: give one of them")
        if not by_default(world.hosts) or world.hostfile is not None or world.ranks is not None:
            raise UsageError(
                "--from reads files, -n, --hosts and --hostfile look at machines: give one of them"
            )
        return read_topologies(options.files, live=options.live)
    if started_by_mpi() or world != World():
        from ccctl.host_search import look_everywhere

        return look_everywhere(world, request, options.timeout)
    return _look(request)


def _record(folder: Path) -> None:
    """Write the raw inputs without addresses, so that the files can be sent."""
    from probes.health import read_gpus
    from probes.live import recorded

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotWriteError(f"{folder}: {error.strerror}") from error
    for name, content in recorded.record(readers=[read_gpus]).items():
        write_atomically(folder / name, content.encode())
    console.note(f"recorded in {folder}: {recorded.SYSFS} and {recorded.NVML}")


def _look(request: DetectRequest) -> Topology:
    from probes.detection import merge as detection

    found = detection.live()
    if request.active:
        from probes.detection import probed

        found = probed(found, request.seed)
    for host in found.hosts:
        methods = sorted({host.method, *host.method_of.values(), *(gpu.method for gpu in host.gpus)})
        console.detail(f"{host.name}: facts from {', '.join(methods)}")
    return found


def _next(found: Topology, files: list[str] | None, output: str | None) -> str:
    gpus = sum(len(host.usable_gpus) for host in found.hosts)
    if not files:
        return f"ccctl profile -n {gpus if gpus > 1 else _PROCESSES}"
    if output is None:
        return f"ccctl detect {' '.join(f'--from {name}' for name in files)} -o topology.json"
    if gpus > 1:
        return f"ccctl synth --network {output} --collective all_reduce"
    return f"ccctl show {output}"
