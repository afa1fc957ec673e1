"""`ccctl detect`: what is connected to what."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccctl import artifacts, console
from ccctl.atomic import write_atomically
from ccctl.errors import CannotWriteError, FoundProblem, UsageError
from ccctl.hosts import HOSTS_VARIABLE
from ccctl.launch import World, started_by_mpi
from ccctl.options import Hostfile, Hosts, Json, Output, Quiet, Ranks, TimeoutSeconds, Verbose

if TYPE_CHECKING:
    from probes.compare import Comparison
    from probes.topology import Topology

__all__ = ["EXAMPLES", "detect"]

EXAMPLES = (
    ("ccctl detect", "draw this machine: PCI tree, NUMA nodes, GPUs, NICs, and who reaches whom"),
    ("ccctl detect -o topology.json", "keep what was found"),
    ("ccctl detect --from nccl-topo.xml --json", "count what a file of NCCL or RCCL describes"),
    ("ccctl detect --from topo.txt", "read the matrix that nvidia-smi topo -m printed"),
    ("ccctl detect --live --from nccl-topo.xml", "look where a file and this machine disagree"),
    ("ccctl detect --record machine", "keep what detection reads here, to report a wrong topology"),
    ("ccctl detect --diff topology.json", "say what differs from what was kept (exit 1)"),
)
_PROCESSES = 4
_LOST = ("host-missing", "host-failed")


def detect(
    files: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Read a file instead of this machine: a topology.json, a topology XML of NCCL or RCCL, the "
            "matrices of nvidia-smi topo, hwloc's XML, a folder of --record; - reads stdin. Several of one "
            "machine are merged, others are more hosts.",
        ),
    ] = None,
    live: Annotated[
        bool,
        typer.Option("--live", help="With --from: look at this machine too, and say where they disagree."),
    ] = False,
    record: Annotated[
        str | None,
        typer.Option(
            "--record",
            metavar="DIR",
            help="Write what detection reads of this machine, to send or to read again by --from DIR.",
        ),
    ] = None,
    ranks: Ranks = None,
    hosts: Hosts = None,
    hostfile: Hostfile = None,
    diff: Annotated[
        str | None,
        typer.Option(
            "--diff",
            metavar="FILE",
            help="Compare with another topology.json or a file of another tool: exit 1 on a difference.",
        ),
    ] = None,
    output: Output = None,
    json: Json = False,
    timeout: TimeoutSeconds = None,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Find out what is connected to what: NUMA nodes, PCI tree, GPUs, NICs, NVLinks.

    On this machine, on one rank a host with --hosts or inside mpirun, or in files of other tools. A NIC is
    one network port; software interfaces are listed apart. What a source cannot tell is a note, never a
    failure. Without GPUs the ranks will be processes.
    """
    from ccctl.topologies import read_topologies

    if record is not None:
        _record(Path(record))
    found = _found(files, live, World(ranks, hosts, hostfile), timeout)
    comparison = _compared(read_topologies([diff]), found) if diff else None
    if output is not None:
        artifacts.write(output, "topology", found)
    if json and output != "-":
        console.summary(_summary(found, comparison))
    _show(found, comparison, diff, drawn=not (json or output == "-" or (quiet and output is not None)))
    _judge(found, comparison, diff)
    console.next_step(_next(found, files, output))


def _found(files: list[str] | None, live: bool, world: World, timeout_s: float | None) -> Topology:
    """From files and perhaps this machine, from every host of the world, or from this machine."""
    from ccctl.topologies import read_topologies

    if files:
        given = world.hosts is not None and world.hosts != os.environ.get(HOSTS_VARIABLE)
        if given or world.hostfile is not None or world.ranks is not None:
            raise UsageError(
                "--from reads files, -n, --hosts and --hostfile look at machines: give one of them"
            )
        return read_topologies(files, live=live)
    if started_by_mpi() or world != World():
        from ccctl.everywhere import look_everywhere
        from probes.gathering import Request

        return look_everywhere(world, Request(), timeout_s)
    return _look()


def _record(folder: Path) -> None:
    """Write the raw inputs; addresses are not among them, so that they can be sent."""
    from probes.live import recorded

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CannotWriteError(f"{folder}: {error.strerror}") from error
    for name, content in recorded.record().items():
        write_atomically(folder / name, content.encode())
    console.note(f"recorded in {folder}: {recorded.SYSFS} and {recorded.NVML}")


def _look() -> Topology:
    from probes import detect as detection

    found = detection.live()
    for host in found.hosts:
        methods = sorted({host.method, *host.method_of.values(), *(gpu.method for gpu in host.gpus)})
        console.detail(f"{host.name}: facts from {', '.join(methods)}")
    return found


def _compared(reference: Topology, found: Topology) -> Comparison:
    from probes.compare import compare

    return compare(reference, found)


def _show(found: Topology, comparison: Comparison | None, diff: str | None, *, drawn: bool) -> None:
    from ccctl.pictures import differences, remarks, topology

    if drawn and comparison is not None:
        differences.draw(comparison, found, diff or "")
    elif drawn:
        topology.draw(found)
    else:
        remarks.remarks(found)


def _judge(found: Topology, comparison: Comparison | None, diff: str | None) -> None:
    """Raise FoundProblem where hosts are missing, or something differs."""
    from ccctl.hosts import fold

    lost = [finding.where for finding in found.findings if finding.what in _LOST]
    if lost:
        raise FoundProblem(f"{fold(lost)}: {len(lost)} hosts of {len(lost) + len(found.hosts)} gave nothing")
    if comparison is not None and comparison.differences:
        count = len(comparison.differences)
        raise FoundProblem(f"{count} difference{'s' if count > 1 else ''} from {diff}")


def _summary(found: Topology, comparison: Comparison | None) -> dict[str, Any]:
    from ccctl.hosts import fold
    from probes.bandwidth import load
    from probes.expected import expected_gbs

    hosts = found.hosts
    compared = {} if comparison is None else dataclasses.asdict(comparison)
    return {
        "hosts": len(hosts),
        "host_names": fold(host.name for host in hosts),
        "gpus": sum(len(host.usable_gpus) for host in hosts),
        "nics": sum(len(host.physical_nics) for host in hosts),
        "nvlinks": sum(host.fabric_links() for host in hosts),
        "findings": [{"what": f.what, "where": f.where, "text": f.text} for f in found.findings],
        "notes": [*found.notes, *compared.pop("notes", ())],
        "numa_nodes": sum(len(host.numa) for host in hosts),
        "pci_devices": sum(len(host.pci) for host in hosts),
        "software_nics": sum(len(host.nics) - len(host.physical_nics) for host in hosts),
        "expected_gbs": {host.name: expected_gbs(host, load()) for host in hosts},
        "ranks_are": "gpus" if any(host.usable_gpus for host in hosts) else "processes",
        **compared,
    }


def _next(found: Topology, files: list[str] | None, output: str | None) -> str:
    gpus = sum(len(host.usable_gpus) for host in found.hosts)
    if not files:
        return f"ccctl profile -n {gpus if gpus > 1 else _PROCESSES}"
    if output is None:
        return f"ccctl detect {' '.join(f'--from {name}' for name in files)} -o topology.json"
    if gpus > 1:
        return f"ccctl synth --network {output} --collective all_reduce"
    return f"ccctl show {output}"
