"""An optimizer that steps some parameters behind backward, and the others when it is told to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from probes.errors import UsageError
from synth.errors import NotApplicableError

__all__ = ["PartialSteps"]


class PartialSteps:
    """Steps of ``optimizer`` for the parameters that are given, each as the optimizer alone would step it."""

    def __init__(self, optimizer: Any) -> None:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise UsageError(f"expected a torch.optim.Optimizer, found {type(optimizer).__name__}")
        if isinstance(optimizer, torch.optim.LBFGS):
            raise NotApplicableError(
                "LBFGS steps by the gradients of all parameters at once: DS-Sync steps layer by layer"
            )
        self._optimizer = optimizer
        step = type(optimizer).step
        # Hooks of the optimizer are for whole steps.
        self._bare = step.__wrapped__ if getattr(step, "hooked", False) else step
        self._place: dict[int, int] = {}
        self._hidden: list[list[Any]] | None = None
        self._tried = False

    def parameters(self) -> list[Any]:
        """All parameters of the optimizer."""
        return [one for group in self._optimizer.param_groups for one in group["params"]]

    def step(self, parameters: Iterable[Any]) -> None:
        """Step these alone."""
        groups = self._optimizer.param_groups
        if not self._place:
            self._place = {id(one): at for at, group in enumerate(groups) for one in group["params"]}
        chosen: list[list[Any]] = [[] for _ in groups]
        for one in parameters:
            chosen[self._place[id(one)]].append(one)
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
        """Keep ``stepped`` from the optimizer until `restore`."""
        known = set(map(id, stepped))
        groups = self._optimizer.param_groups
        self._hide([[one for one in group["params"] if id(one) not in known] for group in groups])

    def restore(self) -> None:
        """Give the optimizer all its parameters back."""
        if self._hidden is not None:
            for group, parameters in zip(self._optimizer.param_groups, self._hidden, strict=True):
                group["params"] = parameters
        self._hidden = None

    def forget_groups(self) -> None:
        """Look up anew where parameters are: scripts may change the optimizer's groups between iterations."""
        self._place = {}

    def _hide(self, kept: list[list[Any]]) -> None:
        self.restore()
        groups = self._optimizer.param_groups
        self._hidden = [group["params"] for group in groups]
        for group, parameters in zip(groups, kept, strict=True):
            group["params"] = parameters

    def _refuse_common_state(self, before: list[dict[str, Any]]) -> None:
        """Raise NotApplicableError where a step changed what parameters of a group share."""
        self._tried = True
        for old, group in zip(before, self._optimizer.param_groups, strict=True):
            changed = [key for key, value in old.items() if group[key] is not value and group[key] != value]
            if changed:
                raise NotApplicableError(
                    f"{type(self._optimizer).__name__} changes {changed[0]!r} of a whole group at each step: "
                    "DS-Sync steps layer by layer, which would change it once a layer"
                )
