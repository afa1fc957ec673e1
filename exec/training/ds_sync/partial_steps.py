"""An optimizer that steps some parameters during the backward pass, and the others at its own step."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch

from probes.base import UsageError
from synth.errors import NotApplicableError

__all__ = ["PartialSteps", "matching_rate"]

# Optimizers that divide the step by the root of mean squares (or sums, or maxima) of gradients.
_NORMALIZING = (
    *("Adam", "AdamW", "SparseAdam", "Adamax", "NAdam", "RAdam"),
    *("RMSprop", "Adagrad", "Adadelta"),
)
# Optimizers with decoupled weight decay: the decay is scaled by the learning rate and not added to the
# gradient.
_DECOUPLED = ("AdamW", "Adafactor", "Muon")
# Optimizers for which no learning-rate factor makes the mean of the ranks' steps equal to DDP's step.
_WITHOUT_FACTOR = {
    "Muon": "it normalizes its momentum, in which the gradient or its noise may prevail, so the factor could "
    "be any from 1 to √ranks",
    "Adafactor": "it limits its learning rate to 1/√step, which no factor changes",
    "Rprop": "it adapts its steps to the signs of gradients, which the noise of a rank's batch can flip",
}
# RAdam does not normalize until the variance has this many degrees of freedom (Liu et al. 2020).
_RECTIFIED_FROM = 5.0


def matching_rate(optimizer: Any, ranks: int) -> float:
    """Return the learning-rate factor that makes the mean of all ranks' steps equal to DDP's step.

    A rank computes its gradient on 1/``ranks`` of the batch, so its noise is √ranks times as large. Adam and
    similar optimizers divide by the size of gradients, which is mostly noise. So the mean of their steps is
    too short by √ranks, and √ranks is the factor, as in the square root scaling rule (Malladi et al., On the
    SDEs and Scaling Rules for Adaptive Gradient Algorithms, NeurIPS 2022). SGD's step is linear in the
    gradient, so its factor is 1. Raises NotApplicableError if no factor exists.
    """
    for name, reason in _WITHOUT_FACTOR.items():
        if ranks > 1 and _is_one_of(optimizer, (name,)):
            raise NotApplicableError(
                f"{name}: no learning rate makes the mean of the steps of {ranks} ranks equal to one step on "
                f"all of their batches: {reason}",
                hint="Give rate_factor=, which multiplies its learning rate; 1 leaves it.",
            )
    return math.sqrt(ranks) if _is_one_of(optimizer, _NORMALIZING) else 1.0


class PartialSteps:
    """Steps of ``optimizer`` on some parameters; each changes as it would in a step of all parameters.

    Learning rates are multiplied by ``rate_factor`` during a step; decoupled weight decay stays unchanged.
    """

    def __init__(self, optimizer: Any, rate_factor: float = 1.0) -> None:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise UsageError(f"expected a torch.optim.Optimizer, found {type(optimizer).__name__}")
        if isinstance(optimizer, torch.optim.LBFGS):
            raise NotApplicableError(
                "LBFGS needs the gradients of all parameters for a step, and DS-Sync steps layer by layer"
            )
        self._optimizer = optimizer
        step = type(optimizer).step
        # The undecorated step, because the optimizer's hooks must run once for a whole step.
        self._bare = step.__wrapped__ if getattr(step, "hooked", False) else step
        self._place: dict[int, int] = {}
        self._hidden: list[dict[str, Any]] | None = None
        self._tried = False
        self._rate_factor = rate_factor

    def parameters(self) -> list[Any]:
        return [each for group in self._optimizer.param_groups for each in group["params"]]

    def step(self, parameters: Iterable[Any]) -> None:
        """Step only these parameters."""
        groups = self._optimizer.param_groups
        if not self._place:
            self._place = {id(each): at for at, group in enumerate(groups) for each in group["params"]}
        chosen: list[list[Any]] = [[] for _ in groups]
        for each in parameters:
            chosen[self._place[id(each)]].append(each)
        before = (
            []
            if self._tried
            else [{key: value for key, value in group.items() if key != "params"} for group in groups]
        )
        self._hide(chosen)
        try:
            with torch.no_grad():
                self._bare(self._optimizer)
        finally:
            self.restore()
        if not self._tried:
            self._refuse_common_state(before)

    def hide(self, stepped: Iterable[Any]) -> None:
        """Hide ``stepped`` from the optimizer until `restore`."""
        known = set(map(id, stepped))
        groups = self._optimizer.param_groups
        self._hide([[each for each in group["params"] if id(each) not in known] for group in groups])

    def restore(self) -> None:
        """Give all parameters and the original learning rates back to the optimizer."""
        if self._hidden is not None:
            for group, settings in zip(self._optimizer.param_groups, self._hidden, strict=True):
                group.update(settings)
        self._hidden = None

    def forget_groups(self) -> None:
        """Forget which parameter is in which group, as scripts may change that between iterations."""
        self._place = {}

    def _hide(self, kept: list[list[Any]]) -> None:
        self.restore()
        groups = self._optimizer.param_groups
        self._hidden = []
        for group, parameters in zip(groups, kept, strict=True):
            changed = {"params": parameters, **self._scaled(group, parameters)}
            self._hidden.append({key: group[key] for key in changed})
            group.update(changed)

    def _scaled(self, group: dict[str, Any], parameters: list[Any]) -> dict[str, Any]:
        """Return the changed settings of a group for a step at ``rate_factor`` times its learning rate."""
        if self._rate_factor == 1 or "lr" not in group or self._is_linear(group, parameters):
            return {}
        found = {"lr": group["lr"] * self._rate_factor}
        decoupled = group.get("decoupled_weight_decay", _is_one_of(self._optimizer, _DECOUPLED))
        if decoupled and "weight_decay" in group:
            found["weight_decay"] = group["weight_decay"] / self._rate_factor
        return found

    def _is_linear(self, group: dict[str, Any], parameters: list[Any]) -> bool:
        """Return whether the next step is an early RAdam step, linear in the gradient like SGD's."""
        if not parameters or not _is_one_of(self._optimizer, ("RAdam",)):
            return False
        step = 1 + min(int(self._optimizer.state[each].get("step", 0)) for each in parameters)
        _, beta = group["betas"]
        freedom = 2 / (1 - beta) - 1 - 2 * step * beta**step / (1 - beta**step)
        return bool(freedom <= _RECTIFIED_FROM)

    def _refuse_common_state(self, before: list[dict[str, Any]]) -> None:
        """Raise NotApplicableError if a step changed a setting that a group's parameters share."""
        self._tried = True
        for old, group in zip(before, self._optimizer.param_groups, strict=True):
            changed = [key for key, value in old.items() if group[key] is not value and group[key] != value]
            if changed:
                raise NotApplicableError(
                    f"{type(self._optimizer).__name__} changes {changed[0]!r} of a whole group at each step: "
                    "DS-Sync steps layer by layer, which would change it once a layer"
                )


def _is_one_of(optimizer: Any, names: Iterable[str]) -> bool:
    """Return whether ``optimizer`` is of one of these `torch.optim` classes; unknown names are ignored."""
    known = tuple(getattr(torch.optim, name) for name in names if hasattr(torch.optim, name))
    return isinstance(optimizer, known)
