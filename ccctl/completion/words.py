"""The words that may follow an option: names of networks, collectives, methods, peers, and hosts.

The names are repeated here, because the registries that define them load NumPy, for which a completing shell
must not wait. Tests check that they agree with the registries.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ccctl.launching import HOSTS_VARIABLE
from exec.launcher import nodeset
from exec.launcher.starters import other_nodes
from probes.base import CcctlError

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
    "METHODS_IN_WORDS",
    "MODELS",
    "MODES",
    "ORDERED_COLLECTIVES",
    "ORDER_FORMATS",
    "PATTERNS",
    "PEERS",
    "PLANNED_FOR",
    "REDOPS",
    "RUNTIMES",
    "SHAPES",
    "SOLVERS",
    "TUNERS",
    "hosts",
    "networks",
    "one_of",
    "several_of",
    "spelled",
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
    "rail",
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
    "hgx-b300",
    "gb200-nvl72",
    "gb200-nvl36",
    "gb300-nvl72",
    "h20",
    "l40s",
    "dgx-spark",
    "gh200",
    "mi250",
    "mi300x",
    "mi325x",
    "mi355x",
)
# Examples of the sizes that follow the name of a family.
SHAPES = {
    "ring": ("4", "8"),
    "mesh": ("4x4", "4x4x4"),
    "torus": ("4x4", "4x4x4"),
    "hypercube": ("8", "16"),
    "fully_connected": ("4", "8"),
    "switch": ("8", "16"),
    "switch_switch": ("8x4", "8x16"),
    "ring_fc_switch": ("2x8x4", "4x8x8"),
    "dragonfly": ("4x4", "9x8"),
    "fat_tree": ("4x2/4", "8x8/2"),
    "rail": ("8x8", "8x8/2"),
    "fc": ("4", "8"),
    "rfs": ("2x8x4", "4x8x8"),
    **dict.fromkeys(MACHINES, ("1", "2", "4", "4/rail", "4/rail/2")),
    **dict.fromkeys(("dgx-spark", "gh200"), ("2", "4", "4/ring")),
}
# The methods of synth, each with what it does.
METHODS_IN_WORDS = {
    "demand": "direct, and through idle ranks where ports are busy",
    "bine": "binomial trees of nearer ranks, by negabinary numbers",
    "trivance": "rings or a torus, both ways at once, in steps three times as far each",
    "exchange": "near ranks exchange their sums",
    "aligned": "sums of a fixed tree, each on its way to the next",
    "nvls": "the switch of each host sums and copies (NVLink SHARP)",
    "circulant": "reduce to the slowest rank while it broadcasts what is summed",
    "stars": "each rank to its host, one link to each other host",
    "symmetric": "one chunk's sends, renumbered for all ranks",
    "greedy": "each free link takes the next chunk that is wanted",
    "gossip": "partial sums spread to any rank that lacks them",
    "ring": "one ring through all ranks, a single channel",
    "bidirectional": "one ring, both ways round",
    "direct": "each rank to each other rank",
    "all_pairs": "each rank to each other rank",
    "doubling": "recursive doubling",
    "halving_doubling": "recursive halving and doubling (Rabenseifner)",
    "tree": "double binary trees",
    "hierarchical": "rings inside hosts, then across hosts",
    "host_halving": "sums inside hosts, then halving and doubling across",
    "two_step": "gathered inside hosts, then across",
    "three_step": "gathered inside hosts, across, and spread again",
    "scatter_allgather": "the root scatters chunks, and each rank spreads those it got",
    "paths": "a path for each chunk, so that the busiest link carries least",
    "forest": "many spanning trees at once",
    "ilp": "integer programs over time",
    "adapcc": "trees that divide the bytes so that all finish together",
    "adapcc_published": "AdapCC as its paper has it",
    "taccl": "integer program for routes, then an order",
    "tacos_published": "TACOS as its paper has it",
    "tacos_ilp_published": "TACOS's integer programs as its paper has them",
}
METHODS = ("auto", *METHODS_IN_WORDS, "periodic")
SOLVERS = ("cbc", "highs")
PEERS = ("mpi", "gloo", "nccl", "mpi:all")
DTYPES = ("float16", "bfloat16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8")
REDOPS = ("sum", "prod", "min", "max", "avg")
LAYER_TABLES = ("bert-base", "bert-large", "densenet-201", "inception-v4", "resnet-50")
# The methods of fusion, each with when it communicates gradients.
FUSION_METHODS = {
    "wfbp": "all_reduces behind the backward pass, one for each layer",
    "ddp": "the same in buckets, as PyTorch's DDP",
    "mg-wfbp": "the same, small layers merged",
    "horovod": "the same, what is ready in each cycle",
    "bytescheduler": "all_reduces of parts, lowest layers first, also behind the forward pass",
    "dear": "reduce_scatters behind the backward, all_gathers behind the forward pass",
    "dear-nl": "dear with four layers a bucket",
    "dear-backpipe": "dear that hides the reduce_scatters only",
    "dear-feedpipe": "dear that hides the all_gathers only",
}
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
# Runtimes that load schedules; stock NCCL loads none, but files that steer its own algorithms.
RUNTIMES = ("msccl", "rccl", "mscclpp")
PLANNED_FOR = (*RUNTIMES, "nccl")
COMPILE_FORMATS = ("msccl", "mscclpp", "chakra", "goal")
ORDERED_COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")
ORDER_FORMATS = ("hostfile", "machinefile", "rankfile", "slurm", "torchrun", "kubernetes", "nccl-graph")
TUNED_LIBRARIES = ("openmpi", "mpich", "nccl", "rccl", "ncclx", "ucc")
TUNED_COLLECTIVES = ("all_gather", "all_reduce", "all_to_all", "reduce_scatter")
TUNERS = ("bo", "paper", "grid", "random")
MODELS = ("mlp", "cnn", "transformer", "moe")
BACKENDS = ("gloo", "ccctl", "nccl")
MODES = (
    "none",
    "ddp",
    "dear",
    "dear-nl",
    "horovod",
    "horovod-tuned",
    "ds-sync",
    "asp",
    "gossip",
    "hierarchical",
    "adaptive",
)
_HOSTFILES = ("hostfile", "hosts")
_NETWORK_FILES = (".json", ".json.gz", ".csv", ".links", ".xml", ".txt")
_LAST_HOST = re.compile(r"(?:[^,\[]|\[[^\]]*\]?)*$")


def one_of(*known: str) -> Answer:
    """Return the completion of an option that takes one of these words."""

    def answer(incomplete: str) -> list[str]:
        return [word for word in known if word.startswith(incomplete)]

    return answer


def several_of(*known: str) -> Answer:
    """Return the completion of an option that takes several of these words, separated by commas."""

    def answer(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        taken = before.split(",")
        return [f"{before}{comma}{word}" for word in known if word.startswith(last) and word not in taken]

    return answer


def spelled(*known: str) -> Answer:
    """Return the completion of an option that takes one of these words in any spelling: AllR, all-r."""

    def answer(incomplete: str) -> list[str]:
        plain = [word for word in known if word.startswith(incomplete)]
        return plain or [continued for word in known if (continued := _continue_word(incomplete, word))]

    return answer


def _continue_word(incomplete: str, word: str) -> str:
    """Return the typed text continued to the end of ``word``; "" if it does not begin ``word``."""
    typed, whole = (re.sub("[-_]", "", text.lower()) for text in (incomplete, word))
    rest = whole[len(typed) :]
    if not whole.startswith(typed):
        return ""
    return incomplete + (rest.upper() if incomplete.isupper() else rest)


def networks(incomplete: str) -> list[str]:
    """Return names of networks and matching files of this folder; after a name, examples of its sizes."""
    name, colon, _ = incomplete.partition(":")
    if colon:
        shapes = [f"{name}:{shape}" for shape in SHAPES.get(name, ())]
        return [shape for shape in shapes if shape.startswith(incomplete)] or [incomplete][: len(shapes)]
    named = [f"{name}:" for name in (*FAMILIES, *MACHINES) if name.startswith(incomplete)]
    # If no network has such a name, leave files to the shell, which completes them better.
    return [*named, *_network_files(incomplete)] if named else []


def _network_files(start: str) -> list[str]:
    """Return folders and possible network files of this folder whose names begin with ``start``."""
    with suppress(OSError), os.scandir() as entries:
        return sorted(
            f"{entry.name}/" if entry.is_dir() else entry.name
            for entry in entries
            if entry.name.startswith(start)
            and not entry.name.startswith(".")
            and (entry.is_dir() or entry.name.endswith(_NETWORK_FILES))
        )
    return []


def hosts(ctx: Any, incomplete: str) -> list[str]:
    """Complete the host after the last comma.

    Hosts come from the hostfile on the command line, the environment and the job; or else from a file named
    hostfile or hosts in this folder.
    """
    last = _LAST_HOST.search(incomplete)
    assert last is not None
    before = incomplete[: last.start()]
    taken = _names(before.rstrip(","))
    sources = (
        _hostfile_hosts(ctx.params.get("hostfile")),
        _names(os.environ.get(HOSTS_VARIABLE)),
        _job_hosts(),
    )
    known = dict.fromkeys(name for source in sources for name in source)
    known = known or dict.fromkeys(name for path in _HOSTFILES for name in _hostfile_hosts(path))
    return [f"{before}{name}" for name in known if name.startswith(last[0]) and name not in taken]


def _names(text: str | None) -> list[str]:
    """Return the hosts of a node set; none if it cannot be parsed."""
    with suppress(CcctlError):
        return [entry.host for entry in nodeset.parse(text)] if text else []
    return []


def _hostfile_hosts(path: str | None) -> list[str]:
    with suppress(CcctlError, OSError):
        return [entry.host for entry in nodeset.read_hostfile(path)] if path else []
    return []


def _job_hosts() -> list[str]:
    with suppress(CcctlError, OSError):
        return _names(other_nodes())
    return []
