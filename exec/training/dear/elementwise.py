"""The optimizers that may be wrapped: each element's update must not depend on other elements."""

from __future__ import annotations

from typing import Any

import torch

from probes.base import UsageError

__all__ = ["SharedNumbers", "refuse_unless_elementwise"]

_ELEMENTWISE = {
    getattr(torch.optim, name)
    for name in (
        "ASGD",
        "Adadelta",
        "Adagrad",
        "Adam",
        "AdamW",
        "Adamax",
        "NAdam",
        "RAdam",
        "RMSprop",
        "Rprop",
        "SGD",
    )
}
# Reasons why other classes of torch.optim are not elementwise.
_REASONS = {
    "LBFGS": "it looks at all gradients at once and evaluates the closure several times a step",
    "SparseAdam": "it takes sparse gradients, which buckets do not hold",
    "Adafactor": "it divides by means over the rows and columns of a tensor",
    "Muon": "it orthogonalizes each matrix as a whole",
}


def refuse_unless_elementwise(optimizer: Any, declared: bool) -> None:
    """Raise UsageError unless ``optimizer`` is of a class of torch.optim known to be elementwise.

    This is required because buckets are updated one after another, and tuning changes what they contain. With
    ``declared`` the caller asserts that an unknown class is elementwise.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise UsageError(f"expected a torch.optim.Optimizer, found {type(optimizer).__name__}")
    name = type(optimizer).__name__
    if name in _REASONS:
        raise UsageError(
            f"{name} is not elementwise: {_REASONS[name]}", hint="DistributedDataParallel trains with it."
        )
    if type(optimizer) not in _ELEMENTWISE and not declared:
        raise UsageError(
            f"{name} is not known to be elementwise",
            hint="If its update of each element depends only on that element's gradient and state, say "
            "elementwise=True.",
        )


class SharedNumbers:
    """A copy of the numbers that parameters share, in an optimizer and in its parameter groups.

    The update of a bucket must not change them, because the update of the next bucket would use the change.
    An example is a count of steps that a class keeps for each group.
    """

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self._before = self._now()

    def refuse_changes(self) -> None:
        """Raise UsageError if the numbers have changed."""
        now = self._now()
        changed = [name for name, value in self._before.items() if now.get(name) != value]
        changed += [name for name in now if name not in self._before]
        if changed:
            raise UsageError(
                f"{type(self._optimizer).__name__} changes {changed[0]} at each step, for all parameters at "
                "once: DeAR updates them bucket by bucket",
                hint="DistributedDataParallel trains with it.",
            )

    def _now(self) -> dict[str, Any]:
        numbers: dict[str, Any] = {
            name: value for name, value in vars(self._optimizer).items() if isinstance(value, int | float)
        }
        for at, group in enumerate(self._optimizer.param_groups):
            for key, value in group.items():
                if key != "params":
                    numbers[f"{key!r} of parameter group {at}"] = (
                        (id(value), value._version) if isinstance(value, torch.Tensor) else value
                    )
        return numbers
