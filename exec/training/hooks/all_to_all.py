"""A differentiable all_to_all by an adaptive session, for mixtures of experts (AdapCC, Sec. VI-D)."""

from __future__ import annotations

from typing import Any

import torch

from exec.adaptive import Session
from exec.training.backend import array_of
from exec.training.hooks.sessions import dtype_of_tensor, tensor_of
from probes.base import UsageError

__all__ = ["all_to_all"]


def all_to_all(tensor: Any, session: Session) -> Any:
    """Send block r of ``tensor`` to rank r, and return a tensor whose block r is from rank r; collective.

    As in ``torch.distributed.nn.functional.all_to_all_single``, blocks are equal parts of the first
    dimension, one for each rank at the session's start. Blocks for lost ranks are dropped, and blocks from
    lost ranks are zeros, so shapes stay the same. The call waits for the data. Gradients take the reverse
    way. Raises UsageError if the number of ranks does not divide the first dimension.
    """
    return _AllToAll.apply(tensor, session)


class _AllToAll(torch.autograd.Function):  # type: ignore[misc]  # torch is not there for mypy
    @staticmethod
    def forward(ctx: Any, tensor: Any, session: Session) -> Any:
        ctx.session = session
        return _exchange(tensor, session)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> tuple[Any, None]:
        return _exchange(gradient, ctx.session), None


def _exchange(tensor: Any, session: Session) -> Any:
    ranks = session.size
    if not tensor.dim() or tensor.shape[0] % ranks:
        raise UsageError(
            f"tensor: expected {ranks} blocks in the first dimension, found {tuple(tensor.shape)}"
        )
    row = tensor.detach().cpu().contiguous().view(-1)
    session.setup(row.numel() // ranks, dtype_of_tensor(tensor), kind="all_to_all")
    work = session.all_to_all(array_of(row))
    found = tensor_of(work.wait()).view(len(work.members), -1)
    if len(work.members) < ranks:
        whole = found.new_zeros(ranks, found.shape[1])
        whole[list(work.members)] = found
        found = whole
    return found.reshape(tensor.shape).to(tensor.device)
