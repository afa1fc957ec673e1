"""Tensors that call back before a script reads or writes them.

A wrapper that updates a parameter later than the script expects must notice when the script uses the
parameter. A watched tensor's class is replaced by a subclass, as with torch's lazy parameters. The subclass's
`__torch_function__` sees every call of torch with the tensor among the arguments. The tensor keeps its
identity, memory, hooks and place in the graph.

Uses that bypass torch's Python functions are not seen: C++ code that takes the tensor directly, compiled
graphs (TorchScript), and other tensors on the same memory, which `shared_memory` finds.
"""

from __future__ import annotations

import copy
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import new_class
from typing import Any

import torch

from probes.base import UsageError

__all__ = ["Watch", "shared_memory"]

# Accesses to a tensor's gradient.
_OF_GRADIENTS = {
    getattr(descriptor, access)
    for descriptor in (torch.Tensor.grad, torch.Tensor._grad)
    for access in ("__get__", "__set__", "__delete__")
}
# Operations that reveal nothing of a tensor's values.
_OF_OTHER = {
    *(
        getattr(torch.Tensor, name).__get__
        for name in ("device", "dtype", "grad_fn", "is_leaf", "layout", "ndim", "requires_grad", "shape")
    ),
    torch.Tensor.requires_grad.__set__,
    *(
        getattr(torch.Tensor, name)
        for name in ("dim", "element_size", "is_complex", "is_floating_point", "nelement", "numel", "size")
    ),
    torch.Tensor.requires_grad_,
}


class Watch:
    """Monitor that calls ``touched(tensor, gradient)`` before a script uses a watched tensor.

    ``gradient`` is True if the script uses the tensor's ``.grad``, False if it uses its values. The tensor is
    not watched during the call and the use; afterwards it is watched again if ``touched`` returned True.
    """

    def __init__(self, touched: Callable[[Any, bool], bool]) -> None:
        self.touched = touched
        self._kinds: dict[type, type] = {}

    def check(self, tensors: Iterable[Any]) -> None:
        """Raise UsageError for a tensor that cannot be watched."""
        for each in tensors:
            base = getattr(type(each), "watched_class", type(each))
            plain = {torch.Tensor.__torch_function__, torch._C._disabled_torch_function_impl}
            if (
                base.__torch_function__ not in plain
                or base.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
            ):
                raise UsageError(
                    f"expected parameters that are plain tensors, found one of type {base.__name__}",
                    hint="Train it with FSDP or another wrapper that supports this type.",
                )

    def arm(self, tensors: Iterable[Any]) -> None:
        """Watch ``tensors``; raises UsageError for one that another `Watch` watches."""
        for each in tensors:
            base = type(each)
            if issubclass(base, _Watched):
                if base.watched_by() not in (self, None):
                    raise UsageError(
                        "a parameter is in two optimizers or wrappers of ccctl",
                        hint="Call close() on the first before the second is made.",
                    )
                base = base.watched_class
            each.__class__ = self._kinds.get(base) or self._watched(base)

    @staticmethod
    def disarm(tensors: Iterable[Any]) -> None:
        for each in tensors:
            if issubclass(type(each), _Watched):
                each.__class__ = type(each).watched_class

    def _watched(self, base: type) -> type:
        """Return the class of watched tensors of class ``base``."""
        members = {"watched_class": base, "watched_by": weakref.ref(self)}
        found = new_class(base.__name__, (_Watched, base), exec_body=lambda own: own.update(members))
        return self._kinds.setdefault(base, found)


class _Watched:
    watched_class: type
    watched_by: weakref.ref[Watch]

    @classmethod
    def __torch_function__(cls, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _OF_OTHER:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs)
        leaves = torch.utils._pytree.tree_leaves((args, kwargs))
        with _unwatched([each for each in leaves if issubclass(type(each), _Watched)], func in _OF_GRADIENTS):
            return func(*args, **kwargs)

    def __deepcopy__(self, memo: Any) -> Any:
        with _unwatched([self], False):
            return copy.deepcopy(self, memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        with _unwatched([self], False):
            return self.__reduce_ex__(protocol)


@contextmanager
def _unwatched(tensors: Iterable[Any], gradient: bool) -> Iterator[None]:
    """Call the `Watch` of each tensor, and leave the tensors unwatched within the block."""
    kinds = [(each, type(each)) for each in {id(each): each for each in tensors}.values()]
    again = kinds
    for each, kind in kinds:
        each.__class__ = kind.watched_class
    try:
        again = [
            (each, kind)
            for each, kind in kinds
            if (watch := kind.watched_by()) is not None and watch.touched(each, gradient)
        ]
        yield
    finally:
        for each, kind in again:
            each.__class__ = kind


def shared_memory(tensors: Iterable[Any]) -> list[Any]:
    """Return the members of ``tensors``, all distinct, whose memory has references from elsewhere.

    Examples of such references are `.data`, `.detach()`, a view, an array of NumPy, and a graph of autograd.
    Memory shared among ``tensors`` themselves does not count.
    """
    storages = [(each, each.untyped_storage()) for each in tensors]
    # The storage's own Python object holds one more reference.
    known = Counter(storage._cdata for _, storage in storages)
    known.update(known.keys())
    return [
        each
        for each, storage in storages
        if torch._C._storage_Use_Count(storage._cdata) > known[storage._cdata]
    ]
