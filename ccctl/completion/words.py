"""The words that may follow an option: names of networks, collectives, methods, peers, and hosts.

The names stand here again, apart from the registries that give them a meaning, because those load NumPy and
a shell that completes must not wait for it; tests hold the two together.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ccctl.launching import HOSTS_VARIABLE
from exec.launcher import nodeset
from exec.launcher.starters.allocation import other_nodes
from probes.errors import CcctlError

__all__ = [
    "BACKENDS",
    "COLLECTIVES",
    "DTYPES",
    "FAMILIES",
    "FUSION_METHODS",
    "LAYER_TABLES",
    "LIBRARY_ALGORITHMS",
    "MACHINES",
    "METHODS",
    "MODELS",
    "MODES",
    "ORDERED_COLLECTIVES",
    "ORDER_FORMATS",
    "PATTERNS",
    "PEERS",
    "REDOPS",
    "SOLVERS",
    "TUNERS",
    "hosts",
    "networks",
    "one_of",
    "several_of",
]

Answer = Callable[[str], list[str]]

COLLECTIVES = (
    "all_gather",
    "reduce_scatter",
    "all_reduce",
    "broadcast",
    "reduce",
    "scatter",
    "gather",
    "all_to_all",
    "all_to_next",
)
FAMILIES = (
    "ring",
    "mesh",
    "torus",
    "hypercube",
    "fully_connected",
    "switch",
    "switch_switch",
    "ring_fc_switch",
    "dragonfly",
    "fat_tree",
    "fc",
    "rfs",
)
MACHINES = (
    "dgx-1",
    "dgx-1p",
    "dgx-2",
    "dgx-a100",
    "dgx-h100",
    "dgx-h200",
    "dgx-b200",
    "ndv2",
    "ndv4",
    "mi250",
    "mi300x",
)
METHODS = (
    "auto",
    "exchange",
    "circulant",
    "stars",
    "symmetric",
    "greedy",
    "ring",
    "bidirectional",
    "direct",
    "all_pairs",
    "doubling",
    "halving_doubling",
    "tree",
    "hierarchical",
    "two_step",
    "three_step",
    "paths",
    "forest",
    "ilp",
    "adapcc",
    "adapcc_published",
    "taccl",
    "periodic",
)
SOLVERS = ("cbc", "highs")
PEERS = ("mpi", "gloo", "nccl", "mpi:all")
DTYPES = ("float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8")
REDOPS = ("sum", "prod", "min", "max", "avg")
LAYER_TABLES = ("bert-base", "bert-large", "densenet-201", "inception-v4", "resnet-50")
FUSION_METHODS = (
    "wfbp",
    "ddp",
    "mg-wfbp",
    "horovod",
    "bytescheduler",
    "dear",
    "dear-nl",
    "dear-backpipe",
    "dear-feedpipe",
)
PATTERNS = ("representatives", "alternating", "butterfly", "mixed_radix")
LIBRARY_ALGORITHMS = (
    "openmpi:ring",
    "openmpi:recursive_doubling",
    "openmpi:rabenseifner",
    "mpich:ring",
    "mpich:recursive_doubling",
    "mpich:rabenseifner",
    "gloo:ring",
    "nccl:ring",
    "nccl:tree",
    "rccl:ring",
    "rccl:tree",
)
PROTOCOLS = ("Simple", "LL128", "LL")
MECHANISMS = ("early-termination", "time-clustering")
COMPILE_FORMATS = ("msccl", "mscclpp", "chakra", "goal")
ORDERED_COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")
ORDER_FORMATS = ("hostfile", "machinefile", "rankfile", "slurm", "torchrun", "kubernetes", "nccl-graph")
TUNED_LIBRARIES = ("openmpi", "mpich", "nccl", "rccl", "ncclx")
TUNED_COLLECTIVES = ("all_gather", "all_reduce", "all_to_all", "reduce_scatter")
TUNERS = ("bo", "paper", "grid", "random")
MODELS = ("mlp", "cnn", "transformer", "moe")
BACKENDS = ("gloo", "ccctl", "nccl")
MODES = ("none", "ddp", "dear", "dear-nl", "horovod", "ds-sync", "asp", "gossip", "hierarchical", "adaptive")
_LAST_HOST = re.compile(r"(?:[^,\[]|\[[^\]]*\]?)*$")


def one_of(*known: str) -> Answer:
    """What completes an option that takes one of these words."""

    def answer(incomplete: str) -> list[str]:
        return [word for word in known if word.startswith(incomplete)]

    return answer


def several_of(*known: str) -> Answer:
    """What completes an option that takes several of these words, with commas."""

    def answer(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        taken = before.split(",")
        return [f"{before}{comma}{word}" for word in known if word.startswith(last) and word not in taken]

    return answer


networks: Answer = one_of(*(f"{name}:" for name in (*FAMILIES, *MACHINES)))


def hosts(ctx: Any, incomplete: str) -> list[str]:
    """The hosts of the hostfile on the line, of the environment and of the job, after the last comma."""
    last = _LAST_HOST.search(incomplete)
    assert last is not None
    before = incomplete[: last.start()]
    taken = _names(before.rstrip(","))
    known = dict.fromkeys(
        name
        for source in (_of_hostfile(ctx.params.get("hostfile")), os.environ.get(HOSTS_VARIABLE), _of_job())
        for name in (source if isinstance(source, list) else _names(source))
    )
    return [f"{before}{name}" for name in known if name.startswith(last[0]) and name not in taken]


def _names(text: str | None) -> list[str]:
    """The hosts of a node set; none where it cannot be read."""
    with suppress(CcctlError):
        return [entry.host for entry in nodeset.parse(text)] if text else []
    return []


def _of_hostfile(path: str | None) -> list[str]:
    with suppress(CcctlError, OSError):
        return [entry.host for entry in nodeset.read_hostfile(path)] if path else []
    return []


def _of_job() -> list[str]:
    with suppress(CcctlError, OSError):
        return _names(other_nodes())
    return []
