"""Seeds of mutants: small valid artifacts of every kind, and files of every format that is read."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from driver import call
from more_samples import compact_schedules, dumps, logs, plans
from racked_networks import racked
from sample_schedules import random_schedule, ring_all_reduce

from ccctl.artifacts import codec
from probes.base.columns import floats, ints, longs

__all__ = ["Sample", "corpus"]

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared/data"
KINDS = (
    "all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce", "scatter", "gather", "all_to_all",
    "all_to_next",
)  # fmt: skip
# Programs of more bytes take the judges longer than the campaign has for a mutant.
_MOST_BYTES = 20_000
_FAMILIES = (
    "ring:4", "mesh:2x3", "switch:4", "fully_connected:3", "hypercube:4", "torus:2x2", "switch_switch:2x2",
    "dragonfly:2x2", "fat_tree:2x2/2", "rfs:2x2x2",
)  # fmt: skip
_METHODS = (
    "ring", "tree", "greedy", "forest", "direct", "doubling", "bidirectional", "hierarchical", "two_step",
    "three_step", "halving_doubling", "paths", "circulant", "demand", "exchange", "gossip", "stars",
)  # fmt: skip
_LAB = """# a rack of two, and one of one
name = "small"
hosts = ["gpu[1-2]:2", "cpu1"]
slots = 2
racks = [["gpu[1-2]"], "cpu1"]
rate = "100Mbit/s"
trunk = "50Mbit/s"
[rates]
"gpu1 -> gpu2" = "5Mbit/s"
"gpu2.egress" = "10Mbit/s"
cpu1.ingress = "20Mbit/s"
"""
_HOSTFILE = "# hosts\ngpu1 slots=4\ngpu2:2\nlogin # none\ngpu[03-05] slots=2 max_slots=8\n"
_LINKS = {
    "plain": "0,1,0.5us,50GB/s\n1,2,0.5us,50GB/s,nic0\n2,0,1us,25GB/s,nic0,nic1\n"
    "1,0,1us,1GB/s\n2,1,1us,1GB/s\n0,2,0,1GB/s\n",
    "headed": "Src,Dst,Latency (ns),Bandwidth (GB/s)\n0,1,500,50\n1,0,500,50\n1,2,700,40\n2,1,700,40\n",
    "named": "4\nsrc,dst,alpha,bandwidth,port\n"
    + "".join(
        f"n{a // 2}:{a % 2},n{b // 2}:{b % 2},1us,1GB/s,p{a}\n" for a in range(4) for b in range(4) if a != b
    ),
}
_COLLECTIVES_TOML = """[[collective]]
kind = "broadcast"
ranks = "0-1"
root = 1
[[collective]]
kind = "all_reduce"
ranks = [2, 3]
"""
_CHUNKS_TOML = """[[chunk]]
from = 0
to = "1-3"
count = 2
[[chunk]]
from = [0, 1, 2, 3]
to = 2
reduce = true
"""
_PAIRS = "# pairs\n0 1\n1 0\n1 0 1\n2 host1 host0:1\n"
_NCCL_TEXT = """# nThread 1 nGpus 2 minBytes 8 maxBytes 16 warmup iters: 5 iters: 20 agg iters: 1
#
# Using devices
#  Rank  0 Group  0 Pid   4242 on     gpu01 device  0 [0000:07:00] NVIDIA H100
#  Rank  1 Group  0 Pid   4243 on     gpu02 device  0 [0000:07:00] NVIDIA H100
#
#                                              out-of-place                       in-place
#  size  count   type  redop  root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#   (B)  (elements)                    (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
  1024  256  half  sum  -1  20.0  0.05  0.05  0  19.0  0.05  0.05  N/A
  33554432  8388608  half  sum  -1  200.0  160.00  160.00  0  201.0  159.00  159.00  3
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 120.5
"""
_NCCL_JSON: dict[str, Any] = {
    "version": 3,
    "args": ["./build/all_gather_perf", "-J", "out.json"],
    "env": ["A=b"],
    "nccl_version": 22807,
    "config": {
        "iterations": 20,
        "warmup_iters": 1,
        "devices": [{"rank": 0, "hostname": "gpu01"}, {"rank": 1, "hostname": "gpu01"}],
    },
    "results": [
        {
            "size": 2048 << at,
            "count": 256 << at,
            "type": "float",
            "redop": "none",
            "root": "    -1",
            "out_of_place": {"time": 20.0, "alg_bw": 0.1, "bus_bw": 0.05, "nwrong": 0.0},
            "in_place": {"time": 21.0, "alg_bw": 0.1, "bus_bw": 0.05, "nwrong": None},
            "out_of_place_per_iter": {
                "p50_us": 19.0, "p99_us": 30.0, "stdev_us": 2.0, "times_us": [18.0, 19.0, 19.0, 20.0, 30.0],
            },
        }
        for at in range(2)
    ],
}  # fmt: skip
_HWLOC = """<?xml version="1.0" encoding="UTF-8"?>
<topology version="2.0">
 <object type="Machine" os_index="0" gp_index="1">
  <info name="HostName" value="small"/>
  <object type="Package" os_index="0" gp_index="2">
   <object type="NUMANode" os_index="0" gp_index="3" local_memory="1000000000"/>
   <object type="Core" os_index="0" gp_index="4"><object type="PU" os_index="0" gp_index="5"/></object>
   <object type="Bridge" gp_index="6" bridge_type="0-1" depth="0" bridge_pci="0000:[00-02]">
    <object type="PCIDev" gp_index="7" pci_busid="0000:01:00.0"
      pci_type="0302 [10de:20b0] [10de:134f] a1" pci_link_speed="15.75">
     <object type="OSDev" gp_index="8" name="cuda0" subtype="CUDA" osdev_type="5"/>
    </object>
    <object type="PCIDev" gp_index="9" pci_busid="0000:02:00.0"
      pci_type="0207 [15b3:1017] [15b3:0007] 00" pci_link_speed="15.75">
     <object type="OSDev" gp_index="10" name="mlx5_0" osdev_type="3"/>
    </object>
   </object>
  </object>
 </object>
</topology>
"""
_NCCL_TOPO = """<?xml version="1.0" encoding="UTF-8"?>
<system version="1">
  <cpu numaid="0" affinity="ffff" arch="x86_64" vendor="AuthenticAMD" familyid="23" modelid="49">
    <pci busid="0000:01:00.0" class="0x060400" link_speed="16.0 GT/s PCIe" link_width="16">
      <pci busid="0000:02:00.0" class="0x030200" vendor="0x10de" device="0x20b0"
        link_speed="16 GT/s" link_width="16">
        <gpu dev="0" sm="80" rank="0" gdr="1">
          <nvlink target="0000:03:00.0" count="4" tclass="0x030200"/></gpu>
      </pci>
      <pci busid="0000:03:00.0" class="0x030200" link_speed="16 GT/s" link_width="16">
        <gpu dev="1" sm="80" rank="1" gdr="1">
          <nvlink target="0000:02:00.0" count="4" tclass="0x030200"/></gpu>
      </pci>
      <pci busid="0000:04:00.0" class="0x020700" link_speed="16 GT/s" link_width="16">
        <nic><net name="mlx5_0" dev="0" speed="200000" port="1" guid="0x1" maxconn="131072" gdr="1"/></nic>
      </pci>
    </pci>
  </cpu>
</system>
"""
_SMI = """\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV12\tPXB\t0-15\t0
GPU1\tNV12\t X \tSYS\t16-31\t1
NIC0\tPXB\tSYS\t X

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_0
"""


@dataclass(frozen=True, eq=False)
class Sample:
    """A file: its kind, how its name ends, its bytes, its ``document`` if it is JSON, whether it is right."""

    name: str
    kind: str
    suffix: str
    content: bytes
    document: Any = None
    right: bool = True


@cache
def corpus(whole: bool = True) -> tuple[Sample, ...]:
    """All samples, each small; ``whole`` takes some seconds, else it is a few of each kind."""
    return tuple(_all(whole))


def _all(whole: bool) -> Iterator[Sample]:
    schedules = [*_schedules(whole)]
    yield from schedules
    with tempfile.TemporaryDirectory() as folder:
        yield from _compiled(schedules, Path(folder), whole)
        yield from _selections(Path(folder), whole)
        for name, kind, content in compact_schedules(Path(folder)):
            yield Sample(name, kind, ".json", content, json.loads(content))
    for name, document in plans():
        yield Sample(name, "plan", ".json", json.dumps(document).encode(), document)
    for name, suffix, content in logs():
        yield Sample(name, "log", suffix, content)
    for name, kind, content, document in dumps():
        yield Sample(name, kind, "" if document is None else ".json", content, document)
    yield from _profiles()
    yield from _reports()
    yield from _histories()
    yield from _models()
    yield from _groups()
    yield from _trainings()
    yield from _topologies(whole)
    yield from _texts()
    yield from _xml_programs(whole)


def _artifact(name: str, kind: str, body: Any) -> Sample:
    content = codec.encode(kind, body)
    return Sample(name, kind, ".json", content, json.loads(content))


def _schedules(whole: bool) -> Iterator[Sample]:
    for seed, (kind, ranks) in enumerate(product(KINDS, (2, 3, 5))):
        yield _artifact(
            f"random {kind} on {ranks}", "schedule", random_schedule(kind, ranks, 1 + seed % 2, seed)
        )
    yield _artifact("ring", "schedule", ring_all_reduce(4))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "schedule.json"
        asked = [(_FAMILIES[0], "all_reduce", "greedy"), (_FAMILIES[2], "all_to_all", "auto")]
        if whole:
            asked = [
                (family, kind, _METHODS[(at + 5 * row) % len(_METHODS)])
                for row, family in enumerate(_FAMILIES)
                for at, kind in enumerate(KINDS)
            ]
            asked += [(_FAMILIES[at], "all_reduce", method) for at in (0, 3) for method in _METHODS]
            asked += [
                ("ring:4", "broadcast:0-1,all_reduce:2-3", "auto"),
                ("mesh:2x3", "all_reduce:0-2,all_gather:3-5", "auto"),
            ]
        for network, kind, method in asked:
            path.unlink(missing_ok=True)
            costs = "--bandwidth 1GB/s --alpha 1us --chunk 1K --chunks 1 --jobs 1"
            how = f"--network {network} {costs} --collective {kind} --method {method}"
            ended = call("synth", *how.split(), "-o", str(path))
            if ended.status == 0 and path.stat().st_size < _MOST_BYTES:
                content = path.read_bytes()
                yield Sample(
                    f"{method} {kind} on {network}", "schedule", ".json", content, json.loads(content)
                )


def _compiled(schedules: list[Sample], folder: Path, whole: bool) -> Iterator[Sample]:
    source, target = folder / "schedule.json", folder / "program.json"
    for sample in schedules[:: 1 if whole else 6]:
        source.write_bytes(sample.content)
        ended = call("compile", str(source), "-o", str(target))
        if ended.status == 0 and target.stat().st_size < _MOST_BYTES:
            content = target.read_bytes()
            yield Sample(f"program of {sample.name}", "program", ".json", content, json.loads(content))
    for path in sorted((ROOT / "examples").glob("*.py")) if whole else ():
        for suffix in (".json", ".xml"):
            kept = target.with_suffix(suffix)
            if (
                call("compile", str(path), "-o", str(kept)).status == 0
                and kept.stat().st_size < 2 * _MOST_BYTES
            ):
                content = kept.read_bytes()
                if suffix == ".json":
                    yield Sample(path.name, "program", ".json", content, json.loads(content))
                else:
                    yield Sample(path.name, "msccl-xml", ".xml", content)


def _selections(folder: Path, whole: bool) -> Iterator[Sample]:
    path = folder / "selection.json"
    asked = [("ring:4", "all_reduce"), ("switch:3", "all_gather"), ("fully_connected:3", "broadcast")]
    for network, kind in asked if whole else asked[:1]:
        costs = ("--bandwidth", "1GB/s", "--alpha", "1us", "--sizes", "1K:1M", "-f", "32", "--jobs", "1")
        ended = call(
            "synth", "--network", network, *costs, "--collective", kind, "--method", "ring", "-o", str(path)
        )
        if ended.status == 0:
            content = path.read_bytes()
            yield Sample(f"selection {kind} on {network}", "selection", ".json", content, json.loads(content))


def _profiles() -> Iterator[Sample]:
    from given_profile import profile_of_links

    from probes.link_costs import HostCopies, SharedPort

    for ranks in (2, 3, 4):
        pairs = [(a, b) for a in range(ranks) for b in range(ranks) if a != b]
        each = 1.0 + np.arange(len(pairs))
        flags = [("", "noisy", "outlier,slow_sender")[at % 3] for at in range(len(pairs))]
        hosts = [f"host{rank // 2}" for rank in range(ranks)]
        ports = (SharedPort("host0 egress", (0, 1), "test"),)
        bare = profile_of_links(
            hosts, pairs, 1e-6 * each, 1e-9 / each, flags=flags, ports=ports, findings=("link 0>1 is slow",)
        )
        yield _artifact(f"profile of {ranks}", "profile", bare)
        copies = tuple(HostCopies(rank, 1e-6, 1e-10, 1e-6, 1e-10) for rank in range(ranks))
        yield _artifact(
            f"profile of {ranks} GPUs", "profile", replace(bare, transport="cuda", host_copies=copies)
        )


def _histories() -> Iterator[Sample]:
    from probes.profiling.history import Event, History

    for runs in (0, 1, 3):
        cost = floats([1e-9 * (1 + at) for at in range(2 * runs)])
        events = tuple(Event(60.0 * at, ("drift", "recovered")[at % 2], "0 → 1") for at in range(runs))
        body = History(
            ("a", "b"), ints([0, 1]), ints([1, 0]), floats([60.0 * at for at in range(runs)]), cost, cost,
            floats([0.0, 60.0]), floats([0.0, 0.0]), floats([60.0, 0.0]), 60.0,
            floats([1e-9] * 2 if runs else []), events,
        )  # fmt: skip
        yield _artifact(f"history of {runs}", "history", body)


def _models() -> Iterator[Sample]:
    from synth.fusion.costs import RingCosts
    from synth.fusion.methods import METHODS, fusion_plan
    from synth.fusion.model import Model
    from synth.fusion.tuning import STRATEGIES, begun

    for strategy in STRATEGIES:
        search = begun(strategy).then(25 << 20, 0.5).then(1 << 21, 0.4)
        yield _artifact(f"{strategy} of 2 trials", "tuning", search)
    for layers in (1, 3):
        tensors = 2 * layers - 1
        times = floats([1e-3 * (1 + at) for at in range(layers)])
        body = Model(
            f"{layers} layers", tuple(f"layer{at}" for at in range(layers)), times, times,
            tuple(f"tensor{at}" for at in range(tensors)), ints([at // 2 for at in range(tensors)]),
            longs([1000 << at for at in range(tensors)]), "made up",
        )  # fmt: skip
        yield _artifact(f"model of {layers}", "model", body)
        for method in METHODS:
            plan = fusion_plan(body, RingCosts(4, 1e-5, 1e-9), method)
            yield _artifact(f"{method} of {layers} layers", "fusion", plan)


def _trainings() -> Iterator[Sample]:
    from exec.benchmark.report import Spread
    from exec.training.workloads.report import TrainedMode, TrainingReport

    for reached_s in (None, 0.4):
        row = TrainedMode(
            "ddp", 4 << 20, 0.1, Spread(0.05, 0.1, 0.2, 0.3, 0.01, 4), (0.1, 0.2), 1000.0, 1500.0,
            floats([2.0, 1.0, 0.5]), longs([1, 3]), floats([0.2, 0.4]), floats([0.25, 1.0]), 1.0, reached_s,
            0.0, None, (1,), "a note",
        )  # fmt: skip
        body = TrainingReport(
            "mlp", 4, 1000, 2, ("a",), "gloo", 3, 1, 16, 0.0, 0.9, 7, (row, row), {"cpu": "x"}
        )
        yield _artifact(
            f"training that {'has not ' if reached_s is None else ''}reached its accuracy", "training", body
        )


def _groups() -> Iterator[Sample]:
    from synth.groups.planner import plan_groups

    for sizes, slow in (([4, 4], ()), ([2, 2], ()), ([5, 2], (1,)), ([3], ())):
        body = plan_groups(racked(sizes, slow_ranks=slow), 1 << 20).groups
        yield _artifact(f"groups of racks of {sizes}", "groups", body)


def _reports() -> Iterator[Sample]:
    from exec.benchmark.report import Measurement, Report, Row, Spread

    spread = Spread(1e-3, 1.1e-3, 1.2e-3, 2e-3, 1e-4, 5, (1e-3, 1.1e-3, 1.1e-3, 1.2e-3, 2e-3))
    full = Measurement(1e-3, 1.1e-3, 1.2e-3, 0, 16.7, 25.1, 0, spread, (1e-3, 9e-4))
    bare = Measurement(2e-3, 2e-3, 2e-3, 1, 8.0, 12.0, None)
    rows = tuple(
        Row("all_reduce", 1024 << at, 256 << at, "float32", "sum", -1, "ring", 9e-4 if at else None,
            full if at != 1 else None, bare if at else None, {"mpi": bare, "ring": full} if at < 2 else {})
        for at in range(3)
    )  # fmt: skip
    yield _artifact(
        "report", "report", Report(2, ("a", "b"), "mpi", "Open MPI 5", 3, 20, rows, "slowest", {"cpu": "x"})
    )
    yield _artifact(
        "report of one row", "report", Report(1, ("a",), "cuda", "NCCL", 0, 1, rows[:1], "average")
    )
    yield Sample("nccl-tests text", "nccl-tests", ".txt", _NCCL_TEXT.encode())
    yield Sample("nccl-tests json", "nccl-json", ".json", json.dumps(_NCCL_JSON).encode(), _NCCL_JSON)


def _topologies(whole: bool) -> Iterator[Sample]:
    from probes.detection import merge as detection

    texts = [
        ("small hwloc", "hwloc-xml", ".xml", _HWLOC),
        ("small NCCL", "nccl-xml", ".xml", _NCCL_TOPO),
        ("small smi", "smi", ".txt", _SMI),
    ]
    folders = (("hwloc", "hwloc-xml", "xml"), ("nccl", "nccl-xml", "xml"), ("smi", "smi", "txt"))
    for folder, kind, suffix in folders if whole else ():
        for path in sorted((SHARED / "topologies" / folder).glob(f"*.{suffix}")):
            if path.stat().st_size < 2 * _MOST_BYTES:
                texts.append((path.name, kind, f".{suffix}", path.read_text()))
    for name, kind, suffix, text in texts:
        try:
            content = codec.encode("topology", detection.combined([detection.read_file(text.encode(), name)]))
        except Exception:
            # A graph of NCCL's, or a file that names no device's class, is no topology.
            yield Sample(name, kind, suffix, text.encode(), right=False)
            continue
        yield Sample(name, kind, suffix, text.encode())
        if len(content) < 2 * _MOST_BYTES:
            yield Sample(f"topology of {name}", "topology", ".json", content, json.loads(content))
    for folder in sorted((ROOT / "tests/machines").iterdir()):
        if not folder.is_dir():
            continue
        body = detection.combined([detection.read_recording(folder)])
        yield _artifact(f"topology of {folder.name}", "topology", body)
        for path, kind in (("nvml.json", "nvml"), ("sysfs.txt", "sysfs")):
            content = (folder / path).read_bytes()
            document = json.loads(content) if kind == "nvml" else None
            other = (folder / ("sysfs.txt" if kind == "nvml" else "nvml.json")).read_bytes()
            if len(content) < 2 * _MOST_BYTES:
                yield Sample(f"{folder.name}/{path}", kind, path, content, (document, other))


def _texts() -> Iterator[Sample]:
    yield Sample("lab", "lab-toml", ".toml", _LAB.encode())
    yield Sample("lab4", "lab-toml", ".toml", (ROOT / "examples/lab4.toml").read_bytes())
    yield Sample("hostfile", "hostfile", ".txt", _HOSTFILE.encode())
    for name, text in _LINKS.items():
        yield Sample(f"links {name}", "links-csv", ".csv", text.encode())
    yield Sample("collectives", "collectives-toml", ".toml", _COLLECTIVES_TOML.encode())
    yield Sample("chunks", "collectives-toml", ".toml", _CHUNKS_TOML.encode())
    document = {"chunk": [{"from": 0, "to": [1, 2, 3], "count": 2}, {"from": "0-3", "to": 0, "reduce": True}]}
    yield Sample("chunks in JSON", "collectives-json", ".json", json.dumps(document).encode(), document)
    document = {"collective": [{"kind": "gather", "ranks": "0-3", "root": 2}]}
    yield Sample("collectives in JSON", "collectives-json", ".json", json.dumps(document).encode(), document)
    yield Sample("pairs", "pairs", ".txt", _PAIRS.encode())
    for dtype in ("float32", "int64", "float16"):
        with tempfile.TemporaryFile() as file:
            np.save(file, np.arange(12).reshape(4, 3).astype(dtype))
            file.seek(0)
            yield Sample(f"array of {dtype}", "npy", ".npy", file.read())


def _xml_programs(whole: bool) -> Iterator[Sample]:
    from synth.msccl.write import write_xml

    for sample in [one for one in _schedules(False) if one.kind == "schedule"][:: 3 if whole else 9]:
        from synth.compiler.lowering import lower

        body = codec.decode(sample.content, sample.name).body
        yield Sample(f"XML of {sample.name}", "msccl-xml", ".xml", write_xml(lower(body)))
    for path in sorted((SHARED / "programs").glob("*.xml")) if whole else ():
        if path.stat().st_size < _MOST_BYTES:
            taken = all(call(command, str(path)).status == 0 for command in ("verify", "compile"))
            yield Sample(path.name, "msccl-xml", ".xml", path.read_bytes(), right=taken)
