"""`ccctl detect`: what is connected to what."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccctl import artifacts, console
from ccctl.atomic import write_atomically
from ccctl.errors import CannotWriteError, MissingInputError
from ccctl.options import Json, Output, Quiet, Verbose

if TYPE_CHECKING:
    from probes.topology import Topology

__all__ = ["EXAMPLES", "detect"]

EXAMPLES = (
    ("ccctl detect", "draw this machine: PCI tree, NUMA nodes, GPUs, NICs, and who reaches whom"),
    ("ccctl detect -o topology.json", "keep what was found"),
    ("ccctl detect --from nccl-topo.xml --json", "count what a file of NCCL or RCCL describes"),
    ("ccctl detect --from topo.txt", "read the matrix that nvidia-smi topo -m printed"),
    ("ccctl detect --live --from nccl-topo.xml", "look where a file and this machine disagree"),
    ("ccctl detect --record machine", "keep what detection reads here, to report a wrong topology"),
)
_PROCESSES = 4


def detect(
    files: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Read this instead of this machine: topology XML of NCCL, RCCL or hwloc, the output of "
            "nvidia-smi topo -m or -p2p, or a folder of --record; - reads stdin. Give it again for more "
            "hosts, or for more about one.",
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
    output: Output = None,
    json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Find out what is connected to what: NUMA nodes, PCI tree, GPUs, NICs, NVLinks.

    A NIC is one network port; software interfaces are listed apart. What a source cannot tell is a
    note, never a failure. Without GPUs the ranks will be processes.
    """
    from ccctl.pictures import topology as picture

    if record is not None:
        _record(Path(record))
    found = _read(files, live) if files else _look()
    if output is not None:
        artifacts.write(output, "topology", found)
    if json and output != "-":
        console.summary(_summary(found))
    if json or output == "-" or (quiet and output is not None):
        picture.remarks(found)
        return
    picture.draw(found)
    console.next_step(_next(found, files, output))


def _look() -> Topology:
    from probes import detect as detection

    found = detection.live()
    for host in found.hosts:
        methods = sorted({host.method, *host.method_of.values(), *(gpu.method for gpu in host.gpus)})
        console.detail(f"{host.name}: facts from {', '.join(methods)}")
    return found


def _read(files: list[str], live: bool) -> Topology:
    """All files as one topology; this machine is believed before what is written of it."""
    from probes import detect as detection

    parts = [detection.look()] if live else []
    for name in files:
        if name != "-" and Path(name).is_dir():
            parts.append(detection.read_recording(Path(name)))
        else:
            parts.append(detection.read_file(_content(name), _source(name)))
    return detection.combined(parts)


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


def _content(name: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except FileNotFoundError as error:
        raise MissingInputError(f"{name}: there is no such file") from error
    except OSError as error:
        raise MissingInputError(f"{name}: {error.strerror}") from error


def _source(name: str) -> str:
    return "stdin" if name == "-" else name


def _summary(found: Topology) -> dict[str, Any]:
    from probes.bandwidth import load
    from probes.expected import expected_gbs

    hosts = found.hosts
    return {
        "hosts": len(hosts),
        "gpus": sum(len(host.usable_gpus) for host in hosts),
        "nics": sum(len(host.physical_nics) for host in hosts),
        "nvlinks": sum(host.fabric_links() for host in hosts),
        "findings": [{"what": f.what, "where": f.where, "text": f.text} for f in found.findings],
        "notes": list(found.notes),
        "numa_nodes": sum(len(host.numa) for host in hosts),
        "pci_devices": sum(len(host.pci) for host in hosts),
        "software_nics": sum(len(host.nics) - len(host.physical_nics) for host in hosts),
        "expected_gbs": {host.name: expected_gbs(host, load()) for host in hosts},
        "ranks_are": "gpus" if any(host.usable_gpus for host in hosts) else "processes",
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
