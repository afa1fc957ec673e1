"""Execution plans of MSCCL++: a small one of our own as its JSON, and those that other tools wrote."""

import json
from pathlib import Path

import pytest

from synth.mscclpp import ExecutionPlan, read_plan

__all__ = ["FILES", "needs_files", "pair_plan", "read_file"]

FOLDER = Path(__file__).parents[2] / ".." / "shared" / "data" / "plans"
FILES = sorted(FOLDER.glob("mscclpp*/*.json"))
needs_files = pytest.mark.skipif(not FILES, reason="the shared plans of MSCCL++ are not here")


def read_file(path: Path) -> ExecutionPlan:
    """The plan in a file."""
    return read_plan(json.loads(path.read_bytes()), path.name)


def pair_plan(kind: str = "memory") -> dict:
    """An all_gather of two ranks: each tells that it is there, puts its chunk, and waits for the other's.

    Over ports it copies its chunk to scratch first.
    """
    return {
        "name": "pair",
        "collective": "allgather",
        "protocol": "Simple",
        "inplace": True,
        "gpus": [_gpu(rank, kind) for rank in range(2)],
    }


def _gpu(rank: int, kind: str) -> dict:
    own = {"index": rank, "size": 1}
    over = {"channel_ids": [0], "channel_type": kind}
    moves = {"src_buff": [{"type": "o", **own}], "dst_buff": [{"buffer_id": 0, **own}]}
    put = [{"name": "put", **moves, "channel_type": kind}, {"name": "nop"}, {"name": "signal", **over}]
    staged = [{"type": "s", "index": 0, "size": 1}]
    copy = {"name": "copy", "src_buff": moves["src_buff"], "dst_buff": staged}
    pws = [copy, {"name": "nop"}, {"name": "pws", **moves, "src_buff": staged, **over}]
    return {
        "id": rank,
        "input_chunks": 1,
        "output_chunks": 2,
        "scratch_chunks": int(kind == "port"),
        "channels": [{"channel_type": kind, "connected_to": [1 - rank]}],
        "remote_buffers": [{"rank": 1 - rank, "type": "o", "access_channel_types": [kind]}],
        "threadblocks": [
            {
                "id": 0,
                "ops": [
                    {"name": "signal", **over},
                    {"name": "wait", **over},
                    {"name": "nop"},
                    *(put if kind == "memory" else pws),
                    {"name": "wait", **over},
                ],
                "channels": [{"channel_type": kind, "channel_ids": [0]}],
                "remote_buffer_refs": [{"access_channel_type": kind, "remote_buffer_ids": [0]}],
            }
        ],
    }
