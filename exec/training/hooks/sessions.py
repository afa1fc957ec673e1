"""An adaptive session for a script that uses torch.distributed, whichever launcher started it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from exec.adaptive import Session, WaitPolicy
from exec.program import BFLOAT16, Array
from exec.training.backend import REDUCIBLE, Word, exchange_through, hear_rank_0, rendezvous
from probes.base import UsageError
from synth.network import Network

__all__ = ["PATIENT", "adaptive_session", "dtype_of_tensor", "tensor_of"]

# Training holds Python's global lock longer than communication alone, so a rank may be silent for longer.
PATIENT = WaitPolicy(silent_s=5.0)
# Longest wait for ranks to arrive: PyTorch's default timeout for gloo.
_MEETING_S = 1800.0
# Numbers of this process's sessions, which name their keys in the store.
_NUMBERS = itertools.count()


def adaptive_session(
    network: Network | None = None,
    *,
    policy: WaitPolicy = PATIENT,
    replan_s: float = 5.0,
    profile_every: int = 0,
    fence: Callable[[int], None] = lambda rank: None,
) -> Session:
    """Return a session of all ranks of the default process group; collective.

    The ranks meet through the store of that group; afterwards the session needs neither store nor group. The
    arguments are those of `Session`; links are measured every ``profile_every`` requests, 0 for never.
    """
    store = dist.PrefixStore(f"ccctl/adaptive/{next(_NUMBERS)}", dist.distributed_c10d._get_default_store())
    rank, size = dist.get_rank(), dist.get_world_size()
    word: Word[None] = hear_rank_0(store, rank, size, lambda: (None, ""), _MEETING_S)
    exchange = exchange_through(dist.PrefixStore(word.scope, store), rank, size, _MEETING_S)
    group = rendezvous(exchange, rank, size)
    session = Session(group, network, policy=policy, replan_s=replan_s, fence=fence)
    session.profile(every=profile_every)
    return session


def dtype_of_tensor(tensor: Any) -> str:
    """Return the executors' name of ``tensor``'s element type; raises UsageError if they do not reduce it."""
    if tensor.dtype not in REDUCIBLE:
        raise UsageError(f"tensor: expected one of {', '.join(REDUCIBLE.values())}, found {tensor.dtype}")
    return REDUCIBLE[tensor.dtype]


def tensor_of(array: Array) -> Any:
    """Return a flat array as a tensor on its memory."""
    if array.dtype == BFLOAT16:
        return torch.from_numpy(array.view("int16")).view(torch.bfloat16)
    return torch.from_numpy(array)
