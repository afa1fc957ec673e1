"""Redistribution of DTensors: to another layout, on the same ranks, on others, or on both.

PyTorch redistributes within one mesh, tensor by tensor. Here all tensors move by one plan, also from one mesh
to another, and all ranks of the job may relay.
"""

from __future__ import annotations

import atexit
import itertools
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from exec.adaptive import measured_network
from exec.program import Array, Layout, dtype_of
from exec.training.backend import (
    Shutdown,
    Word,
    bytes_of,
    exchange_through,
    hear_rank_0,
    rendezvous,
    shared,
)
from probes.base import UsageError
from synth.network import Network
from synth.program import INPUT, OUTPUT, Program
from synth.redistribution import Box, MeshLayout, Moved, Piece, Redistribution, overlap_of, redistribution

if TYPE_CHECKING:
    from exec.mpi import MpiPlan

__all__ = ["redistribute"]

# Longest wait for ranks to arrive: PyTorch's default timeout for gloo.
_MEETING_S = 1800.0
# Longest time that a leaving rank waits for ranks that still need it.
_SHUTDOWN_S = 60.0
_NUMBERS = itertools.count()


def redistribute(
    tensors: DTensor | Sequence[DTensor],
    mesh: Any,
    placements: Sequence[Any],
    *,
    network: Network | None = None,
) -> Any:
    """Return ``tensors``, one or a list, on ``mesh`` with ``placements``; collective.

    All ranks of the default process group must call it, also those on neither mesh: they may relay. As in
    DTensor, a rank outside the mesh of a tensor holds an empty part of it. ``placements`` are Shard or
    Replicate, one for each axis of the mesh. All tensors of a list move together, by one plan, which is kept
    for the next call with the same layouts. The first call connects the ranks, and measures the links between
    them if there is no ``network``. Tensors on a GPU pass through the memory of the host. Gradients do not
    flow back.

    Raises UsageError for other placements, Partial among them: call ``tensor.redistribute`` first.
    """
    listed = [tensors] if isinstance(tensors, DTensor) else list(tensors)
    target = _layout(mesh, placements)
    moved = tuple(
        Moved(tuple(one.shape), one.element_size(), _layout(one.device_mesh, one.placements), target)
        for one in listed
    )
    parts = [one.detach().to_local() for one in listed]
    found = _mover(network).moved(moved, parts, [_empty(one, mesh, placements) for one in listed])
    wrapped = [
        DTensor.from_local(part, mesh, placements, run_check=False, shape=one.shape, stride=one.stride())
        for part, one in zip(found, listed, strict=True)
    ]
    return wrapped[0] if isinstance(tensors, DTensor) else wrapped


def _layout(mesh: Any, placements: Sequence[Any]) -> MeshLayout:
    cuts: list[int | None] = []
    for one in placements:
        # Subclasses of Shard cut in another order.
        if type(one) not in (Shard, Replicate):
            raise UsageError(
                f"placements: expected Shard or Replicate, found {one}",
                hint="Redistribute a Partial tensor within its mesh first.",
            )
        cuts.append(one.dim if isinstance(one, Shard) else None)
    return MeshLayout(tuple(mesh.mesh.flatten().tolist()), tuple(mesh.mesh.shape), tuple(cuts))


def _empty(tensor: DTensor, mesh: Any, placements: Sequence[Any]) -> Any:
    """Return an uninitialized part of this rank for a tensor on ``mesh``."""
    shape: Sequence[int] = (0,)
    if mesh.get_coordinate() is not None:
        shape, _ = compute_local_shape_and_global_offset(tensor.shape, mesh, placements)
    return torch.empty(shape, dtype=tensor.dtype, device=mesh.device_type)


class _Prepared(NamedTuple):
    """A plan, its buffers, and the pieces of tensors that these hold in order."""

    plan: MpiPlan
    send: Array
    recv: Array
    packed: list[Piece]
    unpacked: list[Piece]


class _Mover:
    """The connections and plans of one rank, for all ranks of the default process group."""

    def __init__(self, network: Network | None) -> None:
        store = dist.PrefixStore(
            f"ccctl/redistribution/{next(_NUMBERS)}", dist.distributed_c10d._get_default_store()
        )
        rank, size = dist.get_rank(), dist.get_world_size()
        word: Word[None] = hear_rank_0(store, rank, size, lambda: (None, ""), _MEETING_S)
        exchange = exchange_through(dist.PrefixStore(word.scope, store), rank, size, _MEETING_S)
        self._group = rendezvous(exchange, rank, size)
        self._shutdown = Shutdown(self._group)
        self._network = network
        self._prepared: dict[tuple[Moved, ...], _Prepared | None] = {}

    def moved(self, moved: tuple[Moved, ...], parts: list[Any], into: list[Any]) -> list[Any]:
        """Fill ``into``, the parts of this rank in the new layouts, and return them."""
        rank = self._group.Get_rank()
        held = [one.source.box_of(rank, one.shape) for one in moved]
        wanted = [one.target.box_of(rank, one.shape) for one in moved]
        for part, target, source_box, target_box in zip(parts, into, held, wanted, strict=True):
            _keep(part, source_box, target, target_box)
        if moved not in self._prepared:
            self._prepared[moved] = self._plan(moved)
        prepared = self._prepared[moved]
        if prepared is None:
            return into
        at = 0
        for piece in prepared.packed:
            given = parts[piece.row][_within(held[piece.row], piece.box)]
            row = bytes_of(given.cpu().contiguous().view(-1))
            prepared.send[at : at + row.size] = row
            at += row.size
        prepared.plan.run()
        self._shutdown.count()
        at = 0
        for piece in prepared.unpacked:
            view = into[piece.row][_within(wanted[piece.row], piece.box)]
            size_bytes = view.numel() * view.element_size()
            row = torch.from_numpy(prepared.recv[at : at + size_bytes].copy()).view(view.dtype)
            view.copy_(row.view(view.shape))
            at += size_bytes
        return into

    def _plan(self, moved: tuple[Moved, ...]) -> _Prepared | None:
        """Return the plan; None if no rank lacks anything; collective."""
        from exec.mpi import MpiPlan

        if len({*self._group.allgather(moved)}) > 1:
            raise UsageError("ranks call redistribute with different tensors or layouts")
        blocks = redistribution(self._group.Get_size(), moved)
        if not blocks.size_bytes:
            return None
        network = self._network = self._group.bcast(self._network) or measured_network(self._group)
        program = shared(self._group, lambda: _program(network, blocks))
        # An element is a byte, so that tensors of all types move together.
        layout, rank = Layout(program, max(blocks.size_bytes)), self._group.Get_rank()
        dtype = dtype_of("uint8")
        send, recv = (np.empty(layout.elements(rank, buffer), dtype) for buffer in (INPUT, OUTPUT))
        plan = MpiPlan(layout, self._group, send, recv)
        return _Prepared(plan, send, recv, blocks.packed(rank), blocks.unpacked(rank))

    def close(self) -> None:
        """Leave once no other rank needs this one."""
        self._shutdown.wait(_SHUTDOWN_S)
        for prepared in self._prepared.values():
            if prepared is not None:
                prepared.plan.abandon()
        self._group.mesh.close()


def _keep(part: Any, held: Box | None, into: Any, wanted: Box | None) -> None:
    """Copy what this rank already holds."""
    if held is None or wanted is None:
        return
    both = overlap_of(held, wanted)
    if all(low < end for low, end in both):
        into[_within(wanted, both)] = part[_within(held, both)]


def _program(network: Network, blocks: Redistribution) -> Program:
    from synth import synthesize
    from synth.portfolio import Request
    from synth.stages import compile as compile_

    one, size_bytes = blocks.request()
    request = Request(
        network, "custom", size_bytes=size_bytes, collectives=(one,), jobs=0, listed=True, solving=False
    )
    return compile_(synthesize(request).listed)


def _within(box: Box | None, part: Box) -> tuple[slice, ...]:
    """Return the indices of a part of the tensor in the array that holds ``box``."""
    assert box is not None
    return tuple(slice(low - first, end - first) for (low, end), (first, _) in zip(part, box, strict=True))


# The movers of this process, and the default process group that each serves. The reference is weak, because a
# strong one would keep gloo's threads alive after destroy_process_group.
_MOVERS: list[tuple[weakref.ref[Any], _Mover]] = []


def _mover(network: Network | None) -> _Mover:
    """Return the mover of the current default process group, made on first use; collective."""
    world = dist.group.WORLD
    if not _MOVERS or _MOVERS[-1][0]() is not world:
        _MOVERS.append((weakref.ref(world), _Mover(network)))
    return _MOVERS[-1][1]


@atexit.register
def _leave() -> None:
    for _, mover in _MOVERS:
        mover.close()
