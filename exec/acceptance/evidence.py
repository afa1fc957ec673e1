"""Evidence for an acceptance in files of other tools: health checks, diagnostics, benchmarks, logs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from exec.benchmark.foreign import (
    Evidence,
    dcgm_evidence,
    flight_recorded,
    gcm_evidence,
    is_dcgm,
    is_flight_pickle,
    is_flight_text,
    is_gcm,
    is_nccl_debug,
    is_nvbandwidth,
    is_ras,
    is_superbench,
    nvbandwidth_evidence,
    parse_nccl_debug,
    ras_recorded,
    superbench_evidence,
    worst_first,
)
from probes.base import DataError
from probes.topology import Topology

__all__ = ["evidence_of", "is_evidence"]

_EXPECTED = (
    "expected a file of DCGM (dcgmi diag -j), nvbandwidth (-j), SuperBench (results-summary.jsonl or its "
    "diagnosis), gcm, NCCL's RAS or PyTorch's flight recorder, or a log of NCCL (NCCL_DEBUG=INFO)"
)
# Files of these formats describe a job, often one rank each. Files of one format are read together, to find
# the ranks that differ from the others.
_OF_A_JOB: tuple[tuple[Callable[[bytes], bool], str], ...] = (
    (is_flight_pickle, "flight"),
    (is_ras, "ras"),
    (is_flight_text, "flight"),
    (is_nccl_debug, "nccl"),
)
_JOBS = frozenset(kind for _, kind in _OF_A_JOB)
_OF_A_HOST: tuple[tuple[Callable[[bytes], bool], str], ...] = (
    (is_nvbandwidth, "nvbandwidth"),
    (is_dcgm, "dcgm"),
    (is_gcm, "gcm"),
    (is_superbench, "superbench"),
)


def is_evidence(content: bytes) -> bool:
    """Return whether the content is of a format that `evidence_of` reads."""
    return bool(_format(content))


def evidence_of(documents: Mapping[str, bytes], *, topology: Topology | None = None) -> list[Evidence]:
    """Return what files of other tools found wrong, faults first; ``documents`` maps names to contents.

    Formats are recognized by the content. All logs of NCCL are taken for logs of one job, and so are all
    dumps of RAS and all dumps of the flight recorder. The ``topology`` of the hosts allows two more
    comparisons: the measured rate of a copy with the rate that its path should have, and the NICs that a log
    names with the NICs of the host. Raises DataError for the first file that is of no known format, or
    damaged.
    """
    found: list[Evidence] = []
    of_jobs: dict[str, dict[str, bytes]] = {}
    for source, content in documents.items():
        kind = _format(content)
        if not kind:
            raise DataError(source, [f"{_EXPECTED}, found none of these"])
        if kind in _JOBS:
            of_jobs.setdefault(kind, {})[source] = content
        else:
            found += [replace(one, source=source) for one in _of_host(kind, content, source, topology)]
    for kind, files in of_jobs.items():
        source = next(iter(files)) if len(files) == 1 else ""
        found += [replace(one, source=source) for one in _of_job(kind, files, topology)]
    return worst_first(found)


def _of_host(kind: str, content: bytes, source: str, topology: Topology | None) -> list[Evidence]:
    if kind == "dcgm":
        return dcgm_evidence(content, source)
    if kind == "nvbandwidth":
        return nvbandwidth_evidence(content, source, topology)
    return gcm_evidence(content, source) if kind == "gcm" else superbench_evidence(content, source)


def _of_job(kind: str, files: Mapping[str, bytes], topology: Topology | None) -> list[Evidence]:
    if kind == "nccl":
        return parse_nccl_debug(files).findings(topology)
    recorded = (ras_recorded if kind == "ras" else flight_recorded)(files)
    return [
        Evidence(recorded.tool, lag.host, f"rank {lag.rank}", lag.what, "fault", lag.text)
        for lag in recorded.lags
    ]


def _format(content: bytes) -> str:
    return next((kind for matches, kind in (*_OF_A_HOST, *_OF_A_JOB) if matches(content)), "")
