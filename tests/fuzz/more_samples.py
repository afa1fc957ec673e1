"""Samples of compact schedules, and of the plans, logs and dumps of other tools."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from typing import Any

from driver import call
from sample_plans import pair_plan
from symmetric_samples import made

__all__ = ["compact_schedules", "dumps", "logs", "plans"]

_OSU = """# OSU MPI Allreduce Latency Test v7.5
# Datatype: MPI_INT.
# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations Validation
100000               1181.07           1168.71           1188.92         100 Pass
1000000             11810.70          11687.10          11889.20         100 Pass
"""
_RCCL_ROW = {
    "#wrong": "0", "algBw": 53.3, "busBw": 79.95, "gpus": 4, "name": "AllReduce", "redop": "sum",
    "time": 19.672, "type": "float",
}  # fmt: skip


def compact_schedules(folder: Any) -> Iterator[tuple[str, str, bytes]]:
    """(name, kind, content) of periodic and symmetric schedules."""
    from ccctl.artifacts import codec

    for network, kind in (("mesh:3x3", "all_reduce"), ("mesh:2x3", "broadcast"), ("ring:3", "all_reduce")):
        path = folder / "periodic.json"
        costs = ("--alpha", "1us", "--bandwidth", "1GB/s", "--size", "16M", "--jobs", "1")
        words = ("synth", "--network", network, "--collective", kind, "--method", "periodic", *costs)
        if call(*words, "-o", str(path)).status == 0:
            yield f"periodic {kind} on {network}", "periodic", path.read_bytes()
            path.unlink()
    for network, kind in (
        ("ring:4", "all_gather"),
        ("torus:3x2", "all_reduce"),
        ("hypercube:4", "all_to_all"),
    ):
        body = made(network, kind)
        yield f"symmetric {kind} on {network}", "symmetric", codec.encode("symmetric", body)


def plans() -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, document) of plans of MSCCL++: by memory channels and by port channels."""
    for kind in ("memory", "port"):
        yield f"plan by {kind} channels", pair_plan(kind)


def logs() -> Iterator[tuple[str, str, bytes]]:
    """(name, how its name ends, content) of logs of benchmarks."""
    yield "OSU", ".txt", _OSU.encode()
    rows = [_RCCL_ROW | {"inPlace": at % 2, "size": 1048576} for at in range(2)]
    yield "rccl-tests JSON lines", ".json", "\n".join(map(json.dumps, rows)).encode()
    yield "Inspector", ".log", "\n".join(_inspected(at) for at in range(6)).encode() + b"\n"


def dumps() -> Iterator[tuple[str, str, bytes, Any]]:
    """(name, kind, content, document if it is JSON) of dumps of NCCL's RAS and PyTorch's flight recorder."""
    ras = {
        "nccl_version": "2.28.7",
        "timestamp": "2026-01-01 10:00:00",
        "communicators_count": 1,
        "communicators": [
            {
                "hash": "0xabc",
                "size": 3,
                "ranks_count": 2,
                "missing_ranks_count": 1,
                "ranks": [_ras_rank(0, 9), _ras_rank(1, 7)],
                "missing_ranks": [{**_ras_rank(2, 0), "status": {"unresponsive": True}}],
            }
        ],
        "ras": {"collection_time_sec": 0.01, "timeouts_count": 0},
    }
    yield "RAS", "ras-json", json.dumps(ras).encode(), ras
    flight = {
        "version": "2.5",
        "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
        "pg_status": {"0": {"last_enqueued_collective": 3}},
        "entries": [_flight_entry(at, "completed" if at < 3 else "started") for at in range(1, 4)],
        "rank": 0,
    }
    yield "flight recorder in JSON", "flight-json", json.dumps(flight).encode(), flight
    for protocol in (2, 4):
        yield f"flight recorder, pickle {protocol}", "flight-pickle", pickle.dumps(flight, protocol), None


def _inspected(at: int) -> str:
    return json.dumps(
        {
            "header": {"id": "0xab", "rank": at % 2, "n_ranks": 2, "nnodes": 1},
            "metadata": {"inspector_output_format_version": "v4.0", "hostname": f"gpu{at % 2}", "pid": 9},
            "coll_perf": {
                "coll": "AllReduce",
                "coll_sn": 1 + at // 2,
                "coll_msg_size_bytes": 1 << 20,
                "coll_exec_time_us": 120 + 7 * at,
                "coll_timing_source": "kernel_gpu",
            },
        }
    )


def _ras_rank(number: int, count: int) -> dict[str, Any]:
    status = {"init_state": 0, "async_error": 0, "finalize_called": False, "abort_flag": False}
    place = {"host": "10.0.0.1", "pid": 100 + number, "cuda_dev": number, "nvml_dev": number}
    return {"rank": number, **place, "status": status, "collective_counts": {"AllReduce": count}}


def _flight_entry(number: int, state: str) -> dict[str, Any]:
    return {
        "frames": [{"name": "forward", "filename": "m.py", "line": 1}],
        "record_id": number,
        "pg_id": 0,
        "process_group": ["0", "default_pg"],
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": number,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": 1,
        "input_sizes": [[1024, 256]],
        "input_dtypes": ["Float"],
        "output_sizes": [[1024, 256]],
        "output_dtypes": ["Float"],
        "state": state,
        "time_discovered_started_ns": 1,
        "time_discovered_completed_ns": 2 if state == "completed" else None,
        "retired": state == "completed",
        "timeout_ms": 600000,
        "is_p2p": False,
        "duration_ms": 1.5,
    }
