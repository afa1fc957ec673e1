"""FeedPipe: a bucket is updated before the forward pass of the layers that need it.

Paper: DeAR, Sec. III-B. All all_gathers start at the end of `step`, in the order of the forward pass. The
data of later buckets moves while a layer computes, and no rank waits for another's forward pass.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

__all__ = ["FeedPipe"]


class FeedPipe:
    """Hooks on the modules of ``model`` that update parameters before each module's forward pass.

    ``need`` is called with the parameters of a layer. ``need_all`` is called if it is unknown which
    parameters will be used: until the first training pass ends, in a pass without gradients or in evaluation,
    and if a module is called alone. If a module's own forward never runs, because its parent uses its
    parameters, these count as parameters of the nearest enclosing module that runs. All passes up to the
    first training pass show which modules run.
    """

    def __init__(
        self,
        model: Any,
        parameters: Sequence[Any],
        need: Callable[[Sequence[Any]], None],
        need_all: Callable[[], None],
    ) -> None:
        self._need, self._need_all = need, need_all
        self._model: Any = weakref.ref(model)
        self._parameters = list(parameters)
        self._depth = 0
        self._ran: set[Any] = set()
        self._needs: dict[Any, list[Any]] | None = None
        self._handles: list[Any] = []
        hook = weakref.WeakMethod(self._before)
        after = weakref.WeakMethod(self._after)
        for module in model.modules():
            self._handles.append(module.register_forward_pre_hook(_weak(hook)))
        self._handles.append(model.register_forward_hook(_weak(after), always_call=True))

    def expect(self, parameters: Sequence[Any]) -> None:
        """Replace the parameters, from the next forward pass on."""
        self._parameters = list(parameters)
        if self._needs is not None:
            self._needs = self._parameters_by_module()

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _before(self, module: Any, _: Any) -> None:
        if module is self._model():
            self._depth += 1
            if not (module.training and torch.is_grad_enabled()):
                self._need_all()
        elif not self._depth and torch._C._current_graph_task_id() == -1:
            # A module is called alone, and not by a backward pass. Backward passes call modules alone to
            # recompute activations, but during them all parameters are up to date.
            self._need_all()
        if self._needs is None:
            if self._depth:
                self._ran.add(module)
            self._need_all()
        else:
            self._need(self._needs.get(module, ()))

    def _after(self, module: Any, *_: Any) -> None:
        self._depth -= 1
        # Learn from training only: in evaluation other modules may run, because some have a faster path.
        if self._needs is None and module.training and torch.is_grad_enabled():
            self._needs = self._parameters_by_module()

    def _parameters_by_module(self) -> dict[Any, list[Any]]:
        """Return the parameters of each module that runs, and of its submodules that do not run."""
        model = self._model()
        at = dict(model.named_modules(remove_duplicate=False))
        left = {id(each): each for each in self._parameters}
        found: dict[Any, list[Any]] = {}
        needed: dict[Any, set[int]] = {}
        for name, module in at.items():
            direct = [each for each in module.parameters(recurse=False) if id(each) in left]
            if not direct:
                continue
            while name and at[name] not in self._ran:
                name = name.rpartition(".")[0]
            known = needed.setdefault(at[name], set())
            found.setdefault(at[name], []).extend(each for each in direct if id(each) not in known)
            known.update(id(each) for each in direct)
        inside = {each for known in needed.values() for each in known}
        # Parameters outside the model, such as those of a loss.
        found.setdefault(model, []).extend(each for key, each in left.items() if key not in inside)
        return found


def _weak(method: Any) -> Callable[..., None]:
    """Return a hook that holds no reference to its owner, and that torch.compile does not trace."""

    def hook(*args: Any) -> None:
        if (call := method()) is not None:
            call(*args)

    uncompiled: Callable[..., None] = torch.compiler.disable(hook)
    return uncompiled
