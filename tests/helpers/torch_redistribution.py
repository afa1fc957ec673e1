"""A rank that redistributes DTensors, as torchrun starts it, beside what DTensor itself gives."""

import os
import random

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

from ccctl.torch import redistribute
from probes.base import UsageError

DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool)
SHAPES = ((7, 5), (4, 6), (1, 9), (3, 2, 5), (11,))


def value_of(shape, dtype):
    return (torch.arange(torch.Size(shape).numel()).view(shape) * 7 % 31).to(dtype)


def drawn_mesh(chance, size):
    count = chance.randint(1, size)
    ranks = chance.sample(range(size), count)
    rows = chance.choice([one for one in range(1, count + 1) if count % one == 0])
    layout = torch.tensor(ranks).view(rows, -1)
    return DeviceMesh("cpu", layout if chance.random() < 0.5 else layout.flatten())


def drawn_placements(chance, mesh, axes):
    return [chance.choice([Replicate(), *map(Shard, range(axes))]) for _ in range(mesh.ndim)]


def on(mesh, placements, value):
    """Return a DTensor of ``value``, empty on ranks outside the mesh."""
    return distribute_tensor(value, mesh, placements, src_data_rank=None)


def equal(found, expected):
    mine, theirs = found.to_local(), expected.to_local()
    assert found.placements == expected.placements and found.shape == expected.shape
    assert mine.dtype == theirs.dtype and torch.equal(mine, theirs), (mine, theirs, found.placements)


def main():
    dist.init_process_group("gloo")
    size = dist.get_world_size()
    # The same seed on all ranks, so the same layouts.
    chance = random.Random(3)
    whole = DeviceMesh("cpu", torch.arange(size))
    for number in range(10):
        # Both are made by all ranks.
        meshes = [drawn_mesh(chance, size) for _ in range(2)]
        given, expected = [], []
        placements = drawn_placements(chance, meshes[1], 1)
        for _ in range(chance.randint(1, 3)):
            shape, dtype = chance.choice(SHAPES), chance.choice(DTYPES)
            given.append(
                on(meshes[0], drawn_placements(chance, meshes[0], len(shape)), value_of(shape, dtype))
            )
            expected.append(on(meshes[1], placements, value_of(shape, dtype)))
        # Once with a new plan, once with the one that was kept.
        for _ in range(2):
            for mine, theirs in zip(redistribute(given, meshes[1], placements), expected, strict=True):
                equal(mine, theirs)
        tensor = on(whole, drawn_placements(chance, whole, 2), value_of((9, 4), DTYPES[number % 4]))
        after = drawn_placements(chance, whole, 2)
        equal(redistribute(tensor, whole, after), tensor.redistribute(whole, after))
    part = DTensor.from_local(torch.ones(3), whole, [Partial()], run_check=False)
    try:
        redistribute(part, whole, [Replicate()])
    except UsageError as error:
        assert "expected Shard or Replicate" in error.message
    else:
        raise AssertionError("Partial was taken")
    dist.destroy_process_group()
    print(f"rank {os.environ['RANK']} redistributed")


main()
