"""`ccctl detect`: what is connected to what."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccctl import artifacts, console
from ccctl.errors import MissingInputError
from ccctl.options import Json, Output, Quiet, Verbose

if TYPE_CHECKING:
    from probes.topology import Topology

__all__ = ["EXAMPLES", "detect"]

EXAMPLES = (
    ("ccctl detect", "draw this machine: PCI tree, NUMA nodes, GPUs, NICs, and who reaches whom"),
    ("ccctl detect -o topology.json", "keep what was found"),
    ("ccctl detect --from nccl-topo.xml --json", "count what a file of NCCL or RCCL describes"),
)
_PROCESSES = 4


def detect(
    files: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Read an NCCL or RCCL topology XML instead of this machine; - reads stdin. Give it again "
            "for more hosts.",
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

    found = _read(files) if files else _look()
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


def _read(files: list[str]) -> Topology:
    from probes import detect as detection

    return detection.side_by_side([detection.from_file(_content(name), _source(name)) for name in files])


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
