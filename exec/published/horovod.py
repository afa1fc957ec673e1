"""Horovod's method: in each cycle, ranks agree on the gradients that all have, and all_reduce these."""

from __future__ import annotations

import threading
import time
from typing import Any

import torch
import torch.distributed as dist

from exec.published.flat import put, trainable, values

__all__ = ["Horovod"]

# Horovod's documented default of HOROVOD_FUSION_THRESHOLD (docs/tensor-fusion.rst).
_BUFFER_BYTES = 64 << 20


class Horovod:
    """Averaging of gradients during the backward pass; the constructor and ``close`` are collective.

    A thread wakes every ``cycle_s``. The ranks find the tensors that are ready on all of them by an
    all_reduce over gloo of one byte per tensor. Then they all_reduce these tensors in messages of at most
    ``buffer_bytes``, or of the size that ``tuning`` tries or has found (a `Retuning` of DeAR).
    """

    def __init__(
        self, model: torch.nn.Module, cycle_s: float, buffer_bytes: int = 0, tuning: Any = None
    ) -> None:
        self._parameters, self._cycle_s = trainable(model), cycle_s
        self._tuning = tuning
        self._buffer_bytes = tuning.first_bytes if tuning else buffer_bytes or _BUFFER_BYTES
        self._agreement = dist.new_group(backend="gloo")
        self._lock = threading.Lock()
        self._ready = torch.zeros(len(self._parameters), dtype=torch.uint8)
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(self._hook(at))
            for at, parameter in enumerate(self._parameters)
        ]
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def before_forward(self) -> None:
        """Start the cycles of an iteration."""
        self._ready.zero_()
        self._thread = threading.Thread(target=self._cycles, name="horovod cycles", daemon=True)
        self._thread.start()

    def after_backward(self) -> None:
        """Wait until every gradient is the mean over all ranks; a missing gradient counts as zero."""
        with self._lock:
            for parameter in self._parameters:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
            self._ready.fill_(1)
        assert self._thread is not None, "before_forward comes first"
        self._thread.join()
        if self._error is not None:
            raise self._error
        if self._tuning is not None:
            self._buffer_bytes = self._tuning.stepped(self._buffer_bytes) or self._buffer_bytes
            self._tuning = None if self._tuning.done else self._tuning

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()
        dist.destroy_process_group(self._agreement)

    def _hook(self, at: int) -> Any:
        def ready(parameter: Any) -> None:
            with self._lock:
                self._ready[at] = 1

        return ready

    def _cycles(self) -> None:
        try:
            left = torch.ones(len(self._parameters), dtype=torch.uint8)
            # Every rank must run the same number of cycles, because each is a collective call.
            while left.any():
                time.sleep(self._cycle_s)
                with self._lock:
                    agreed = self._ready.clone()
                dist.all_reduce(agreed, dist.ReduceOp.MIN, group=self._agreement)
                # The backward pass goes through the parameters in reverse.
                self._reduce(torch.flip((agreed * left).nonzero()[:, 0], [0]).tolist())
                left *= 1 - agreed
        except BaseException as error:
            self._error = error

    def _reduce(self, numbers: list[int]) -> None:
        together: list[Any] = []
        filled = 0
        for number in numbers:
            gradient = self._parameters[number].grad
            size_bytes = gradient.numel() * gradient.element_size()
            if together and filled + size_bytes > self._buffer_bytes:
                _average(together)
                together, filled = [], 0
            together.append(gradient)
            filled += size_bytes
        if together:
            _average(together)


def _average(gradients: list[Any]) -> None:
    row = values(gradients)
    dist.all_reduce(row)
    put(row.div_(dist.get_world_size()), gradients)
