"""Let NCCL's own code read our topology and graph files, and compare our channels with NCCL's.

    python -P benchmarks/nccl_graph_judge.py NCCL SCRATCH [TOPOLOGY …] [--boxes] [--include FOLDER …]

NCCL is a checkout of github.com/NVIDIA/nccl (read for 2.30.7). SCRATCH is a folder outside the project, where
NCCL's src/graph/{xml,topo,paths,search}.cc are compiled unchanged with nccl_graph_judge.cc. ``--include``
names folders with CUDA's headers (cuda_runtime.h, crt/, nv/), which PyPI's nvidia-cuda-runtime-cu12,
-nvcc-cu12 and -cccl-cu12 have. No GPU is needed. TOPOLOGY is any input of ``ccctl detect --from``;
``--boxes`` adds the hosts of tests/helpers/gpu_boxes.py. Each host is exported as a topology file, which NCCL
reads. A row says whether NCCL accepted both files, and the GB/s that all channels carry together by our model
of the links: with the channels of NCCL's search on that topology, and with ours. The exit status is 1 if NCCL
refused a file.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ccctl.arguments.topologies import read_topologies
from probes.nccl.exporter import export
from probes.nccl.ports import numbered_ports
from probes.paths.bandwidth import load
from probes.topology import Host
from synth.nccl_graphs.capacities import capacities_of
from synth.nccl_graphs.channels import GraphChannel, total_gbs
from synth.nccl_graphs.graph_xml import FileGraph, graph_file, read_graphs
from synth.nccl_graphs.planner import HostGraphs, plan_graphs

SOURCES = ("xml", "topo", "paths", "search")


def compiled(nccl: Path, scratch: Path, includes: Sequence[str]) -> Path:
    """Compile NCCL's parser and search into a program, once."""
    program = scratch / "judge"
    if program.exists():
        return program
    scratch.mkdir(parents=True, exist_ok=True)
    header = (nccl / "src/nccl.h.in").read_text()
    for name, value in {"Major": "2", "Minor": "30", "Patch": "7", "Suffix": "", "Version": "23007"}.items():
        header = header.replace(f"${{nccl:{name}}}", value)
    (scratch / "nccl.h").write_text(header)
    folders = [
        scratch,
        *(nccl / "src" / name for name in ("include", "include/plugin", "graph", ".")),
        *includes,
    ]
    given = [f"-I{folder}" for folder in folders]
    flags = ["-std=c++17", "-O1", "-w", "-DNCCL_OS_LINUX", "-DCUDA_MAJOR=12", "-DCUDA_MINOR=9", *given]
    units = [nccl / f"src/graph/{name}.cc" for name in SOURCES]
    units.append(Path(__file__).with_name("nccl_graph_judge.cc"))
    objects = [scratch / f"{unit.stem}.o" for unit in units]
    for unit, made in zip(units, objects, strict=True):
        subprocess.run(["g++", *flags, "-c", unit, "-o", made], check=True)
    # Symbols that only run with a GPU stay unresolved.
    linked = ["-lpthread", "-ldl", "-no-pie", "-Wl,--unresolved-symbols=ignore-all"]
    subprocess.run(["g++", "-o", program, *objects, *linked], check=True)
    return program


def judged(program: Path, topology: Path, *, between_hosts: bool, **variables: str) -> tuple[bool, str]:
    """Return (whether NCCL accepted the files, what it printed). Its structures need a large stack."""
    done = subprocess.run(
        ["bash", "-c", 'ulimit -s unlimited; exec "$0" "$@"', program, topology, str(int(between_hosts))],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode == 0 and "TAKEN" in done.stdout, done.stdout


def completed(content: bytes) -> bytes:
    """Return the file with empty PCIe links where it names none, so that NCCL does not ask the machine."""
    lines = []
    for line in content.decode().splitlines():
        if "<pci " in line and "link_width" not in line:
            line = line.replace(
                "<pci ",
                '<pci link_speed="" link_width="0" ' if "link_speed" not in line else '<pci link_width="0" ',
            )
        lines.append(line)
    return "\n".join([*lines, ""]).encode()


def carried_gbs(host: Host, graphs: HostGraphs, found: FileGraph) -> float:
    """Return the GB/s that the channels of a file carry together, by our model of the links."""
    ports = numbered_ports(host)
    nics = [nic for nic in host.physical_nics if ports.get(nic.name) in graphs.net_numbers]
    room = capacities_of(host, nics, load())
    place = {number: at for at, number in enumerate(graphs.gpu_numbers)}
    port = {ports[nic.name]: at for at, nic in enumerate(nics)}
    channels = [
        GraphChannel(
            tuple(place[gpu] for gpu in gpus), port[nets[0]] if nets and graphs.net_numbers else None
        )
        for nets, gpus in found.channels
    ]
    return total_gbs(room, channels)


def row(program: Path, scratch: Path, host: Host, *, between_hosts: bool) -> bool:
    """Print the row of one host; return whether NCCL accepted both files."""
    label = f"{host.name[:28]:28} {'hosts' if between_hosts else 'one':>5}"
    topology, ours, own = (scratch / f"{name}.xml" for name in ("topology", "ours", "own"))
    topology.write_bytes(completed(export(host).content))
    graphs = plan_graphs(host, between_hosts=between_hosts)
    ours.write_bytes(graph_file(graphs))
    own.unlink(missing_ok=True)
    searched, told = judged(program, topology, between_hosts=between_hosts, NCCL_GRAPH_DUMP_FILE=str(own))
    if not searched:
        print(f"{label} the topology was not taken: {told.splitlines()[-1]}", flush=True)
        return False
    again = scratch / "again.xml"
    taken, told = judged(
        program,
        topology,
        between_hosts=between_hosts,
        NCCL_GRAPH_FILE=str(ours),
        NCCL_GRAPH_DUMP_FILE=str(again),
    )
    same = taken and [one.channels for one in read_graphs(again.read_bytes(), str(again))] == [
        one.channels for one in read_graphs(ours.read_bytes(), str(ours))
    ]
    if not same:
        print(f"{label} the graphs were not taken: {told.splitlines()[-1]}", flush=True)
        return False
    ring = read_graphs(own.read_bytes(), str(own))[0]
    theirs = carried_gbs(host, graphs, ring)
    print(
        f"{label} taken   NCCL's own {len(ring.channels):2} channels {theirs:6.1f} GB/s   ours "
        f"{len(graphs.ring.channels):2} {graphs.ring.total_gbs:6.1f} of {graphs.ring.most_gbs:6.1f}   "
        f"{graphs.ring.total_gbs / theirs:5.2f}x",
        flush=True,
    )
    return True


def main() -> int:
    """Print one row for each host, within it and between hosts; return 1 if NCCL refused a file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("nccl", type=Path)
    parser.add_argument("scratch", type=Path)
    parser.add_argument("topologies", nargs="*")
    parser.add_argument("--boxes", action="store_true")
    parser.add_argument("--include", action="append", default=[])
    given = parser.parse_args()
    program = compiled(given.nccl, given.scratch, given.include)
    hosts = [host for name in given.topologies for host in read_topologies([name]).hosts]
    if given.boxes:
        sys.path.insert(0, str(Path(__file__).parents[1] / "tests/helpers"))
        from gpu_boxes import ODD, box

        hosts += [box(**keywords, name=name) for name, keywords in ODD.items()]
    good = True
    for host in hosts:
        for between_hosts in (False, True):
            if not between_hosts or numbered_ports(host):
                good = row(program, given.scratch, host, between_hosts=between_hosts) and good
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
