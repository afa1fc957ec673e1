"""Planned collectives on arrays, on ranks that meet through files."""

import ast

import pytest
from joined import needs_ucx, run_joined

SCRIPT = """
import os
import numpy as np
from exec.adaptive.messages import CollectiveCall
from exec.adaptive.replanner import first_schedules
from exec.training.backend.group_rendezvous import Shutdown, rendezvous
from exec.training.backend.planned_collectives import PlannedCollectives

def search(network, request):
    return first_schedules(network, [request], range(size))[request]

def run(request, *arrays):
    if not plans.has(request):
        plans.keep(request, plans.make(request, group))
    plans.run(request, *arrays)

os.makedirs(os.path.join(folder, "own"), exist_ok=True)
group = rendezvous(exchange_through(os.path.join(folder, "own"), rank, size), rank, size)
shutdown = Shutdown(group)
plans = PlannedCollectives(group, None, search)
found = []
count = 30_011
for number in range(3):
    # Other memory each time.
    data = np.arange(count, dtype=np.float32) % 7 * (rank + number)
    run(CollectiveCall("all_reduce", "sum", "float32", count, 4), data)
    expected = np.arange(count, dtype=np.float32) % 7 * sum(each + number for each in range(size))
    found.append(bool((data == expected).all()))
given = np.concatenate([np.full(count, rank * size + to, np.int32) for to in range(size)])
result = np.zeros(count, np.int32)
run(CollectiveCall("reduce_scatter", "max", "int32", count, 4), given, result)
found.append(bool((result == (size - 1) * size + rank).all()))
found.append(bool((given == np.repeat(np.arange(size) + rank * size, count)).all()))
both = np.zeros(count * size, np.uint8)
both[rank * count:(rank + 1) * count] = rank + 1
run(CollectiveCall("all_gather", "sum", "uint8", count, 1), both)
found.append(bool((both == np.repeat(np.arange(1, size + 1), count)).all()))
try:
    run(CollectiveCall("all_reduce", "sum", "float32", 100 + rank, 4), np.zeros(100 + rank, np.float32))
except Exception as error:
    found.append(type(error).__name__)
shutdown.count()
shutdown.wait(60)
print(found)
plans.close()
group.mesh.close()
"""


@pytest.mark.parametrize("wires", ["", "tcp", pytest.param("ucx", marks=needs_ucx)])
def test_plans_move_to_the_arrays_of_each_call(tmp_path, wires):
    for said in run_joined(tmp_path, 2, SCRIPT, wires=wires):
        assert ast.literal_eval(said) == [True] * 6 + ["UsageError"]
