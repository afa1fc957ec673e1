"""Asynchronous parallel: parameter servers that apply each gradient on arrival and answer at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from exec.published.flat import put, trainable, values

__all__ = ["Asp"]

# Tags of gradients and of answers: between two ranks, both travel in both directions. Any two numbers do, as
# no other messages have tags in this group.
_PUSH, _PULL = 71, 72


class Asp:
    """Sharded parameter servers, one on each rank; making them is collective.

    The server on rank r holds the r-th share of the parameters, and has a thread for each other rank. In each
    of ``steps`` iterations, every rank sends each server that server's share of the gradient. The server
    applies it by an optimizer step and returns the updated parameters. Synchronous training makes one step by
    the mean of all gradients; here each gradient makes a separate step, so the learning rate is divided by
    the number of ranks. No rank waits for another's gradient, so a gradient may be computed at outdated
    parameters.

    ``make_optimizer`` makes the optimizer of a list of parameters. Several threads send and receive at the
    same time, which gloo allows and NCCL does not.
    """

    def __init__(
        self, model: torch.nn.Module, make_optimizer: Callable[[list[Any]], Any], steps: int
    ) -> None:
        self._rank, self._size = dist.get_rank(), dist.get_world_size()
        self._parameters = trainable(model)
        self._group = dist.new_group(backend="gloo")
        row = values(self._parameters)
        share = -(-row.numel() // self._size)
        self._bounds = [
            (min(at * share, row.numel()), min((at + 1) * share, row.numel())) for at in range(self._size)
        ]
        self._row = row
        first, end = self._bounds[self._rank]
        self._served = torch.nn.Parameter(row[first:end].clone())
        self._optimizer = make_optimizer([self._served])
        for settings in self._optimizer.param_groups:
            settings["lr"] /= self._size
        self._lock = threading.Lock()
        self._errors: list[BaseException] = []
        self._servers = [
            threading.Thread(target=self._serve, args=(peer, steps), name=f"server of {peer}", daemon=True)
            for peer in self._peers
        ]
        for server in self._servers:
            server.start()

    @property
    def _peers(self) -> list[int]:
        return [peer for peer in range(self._size) if peer != self._rank]

    def after_backward(self) -> None:
        """Send the gradient to the servers, and receive their updated parameters."""
        gradient = values(
            [torch.zeros_like(each) if each.grad is None else each.grad for each in self._parameters]
        )
        works = []
        for peer in self._peers:
            first, end = self._bounds[peer]
            if end > first:
                works.append(dist.isend(gradient[first:end], peer, self._group, _PUSH))
                works.append(dist.irecv(self._row[first:end], peer, self._group, _PULL))
        first, end = self._bounds[self._rank]
        self._row[first:end] = self._answer(gradient[first:end])
        for work in works:
            work.wait()
        if self._errors:
            raise self._errors[0]
        put(self._row, self._parameters)

    def finish(self) -> None:
        """Wait until all gradients are applied, and set all replicas to the final parameters; collective."""
        for server in self._servers:
            server.join()
        if self._errors:
            raise self._errors[0]
        dist.barrier(group=self._group)
        for peer, (first, end) in enumerate(self._bounds):
            if end > first:
                part = self._served.detach().clone() if peer == self._rank else self._row[first:end].clone()
                dist.broadcast(part, peer, group=self._group)
                self._row[first:end] = part
        put(self._row, self._parameters)

    def close(self) -> None:
        dist.destroy_process_group(self._group)

    def _answer(self, gradient: Any) -> Any:
        """Apply one more gradient, and return a copy of the share."""
        with self._lock:
            self._served.grad = gradient
            self._optimizer.step()
            return self._served.detach().clone()

    def _serve(self, peer: int, steps: int) -> None:
        try:
            if not self._served.numel():
                return
            gradient = torch.empty_like(self._served)
            for _ in range(steps):
                dist.irecv(gradient, peer, self._group, _PUSH).wait()
                dist.isend(self._answer(gradient), peer, self._group, _PULL).wait()
        except BaseException as error:
            self._errors.append(error)
