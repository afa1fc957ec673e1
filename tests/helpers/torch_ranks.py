"""A rank of a training script in tests: `python torch_ranks.py CASE`, as torchrun starts it."""

import os
import signal
import sys
import threading
import time
import weakref
from datetime import timedelta
from functools import partial

import apart
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ccctl.torch  # noqa: F401 - where the entry points are not those of this tree
from exec.training.backend.process_group import TorchGroup

# More than goes to gloo at once, and no multiple of anything.
COUNT = 40_013
OPERATORS = {
    dist.ReduceOp.SUM: lambda parts: parts.sum(0),
    dist.ReduceOp.PRODUCT: lambda parts: parts.prod(0),
    dist.ReduceOp.MIN: lambda parts: parts.amin(0),
    dist.ReduceOp.MAX: lambda parts: parts.amax(0),
}
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.uint8)


def of(rank, count=COUNT, dtype=torch.float32):
    """Return the data of ``rank``: small whole numbers, exact in every type."""
    return ((torch.arange(count) * (rank + 3) + rank) % 5).to(dtype)


def all_of(count=COUNT, dtype=torch.float32):
    return torch.stack([of(rank, count, dtype) for rank in range(dist.get_world_size())])


def equal(found, expected):
    assert torch.equal(found.double(), expected.double()), (found, expected)


def reductions(rank, size):
    for dtype in DTYPES:
        data = of(rank, dtype=dtype)
        dist.all_reduce(data)
        equal(data, all_of(dtype=torch.float64).sum(0))
    for op, reduced in OPERATORS.items():
        data = of(rank)
        dist.all_reduce(data, op)
        equal(data, reduced(all_of()))
        dist.reduce(data := of(rank), size - 1, op)
        if rank == size - 1:
            equal(data, reduced(all_of()))
        given, output = of(rank, size * COUNT), torch.empty(COUNT)
        dist.reduce_scatter_single(output, given, op)
        equal(output, reduced(all_of(size * COUNT)).chunk(size)[rank])
        equal(given, of(rank, size * COUNT))
    dist.all_reduce(data := of(rank), dist.ReduceOp.AVG)
    assert torch.allclose(data, all_of().mean(0))
    # gloo takes the operators that executors do not reduce.
    dist.all_reduce(bits := of(rank, dtype=torch.int32), dist.ReduceOp.BOR)
    expected = of(0, dtype=torch.int32)
    for other in range(1, size):
        expected |= of(other, dtype=torch.int32)
    equal(bits, expected)
    parts = [of(rank, size * COUNT)[at * COUNT : (at + 1) * COUNT].clone() for at in range(size)]
    dist.reduce_scatter(output := torch.empty(COUNT), parts)
    equal(output, all_of(size * COUNT).sum(0).chunk(size)[rank])
    several = [of(rank), of(rank, 7)]
    dist.all_reduce_coalesced(several)
    equal(several[0], all_of().sum(0))
    equal(several[1], all_of(7).sum(0))
    turned = of(rank, 200 * 300).view(200, 300).t()
    dist.all_reduce(turned)
    equal(turned, all_of(200 * 300).sum(0).view(200, 300).t())


def movements(rank, size):
    for dtype in (torch.float32, torch.bool, torch.complex64):
        whole = all_of(dtype=dtype)
        dist.broadcast(data := of(rank, dtype=dtype), size - 1)
        assert torch.equal(data, whole[size - 1])
        dist.all_gather_single(found := torch.empty(size * COUNT, dtype=dtype), of(rank, dtype=dtype))
        assert torch.equal(found, whole.view(-1))
        parts = [torch.empty(COUNT, dtype=dtype) for _ in range(size)]
        dist.all_gather(parts, of(rank, dtype=dtype))
        assert torch.equal(torch.stack(parts), whole)
    into = torch.empty(size, COUNT)
    into[rank] = of(rank)
    dist.all_gather_single(into, into[rank])
    equal(into, all_of())
    dist.all_to_all_single(found := torch.empty(size * COUNT), of(rank, size * COUNT))
    equal(found, torch.cat([row.chunk(size)[rank] for row in all_of(size * COUNT)]))
    sizes = [(rank + other + 1) * 1000 for other in range(size)]
    uneven, given = torch.empty(sum(sizes)), torch.full((sum(sizes),), rank * 1.0)
    dist.all_to_all_single(uneven, given, sizes, sizes)
    equal(uneven, torch.cat([torch.full((each,), other * 1.0) for other, each in enumerate(sizes)]))
    lists = [torch.empty(COUNT) for _ in range(size)]
    dist.all_to_all(lists, [of(rank * size + to) for to in range(size)])
    equal(torch.stack(lists), torch.stack([of(other * size + rank) for other in range(size)]))
    parts = [torch.empty(COUNT) for _ in range(size)] if rank == 1 else None
    dist.gather(of(rank), parts, 1)
    if parts:
        equal(torch.stack(parts), all_of())
    dist.scatter(found := torch.empty(COUNT), list(all_of()) if rank == 1 else None, 1)
    equal(found, of(rank))
    if rank == 0:
        dist.send(of(5), 1)
    elif rank == 1:
        dist.recv(found := torch.empty(COUNT))
        equal(found, of(5))
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": each} for each in range(size)]


def unequal(rank, size):
    """Blocks of unequal sizes, one of them empty; twice: with a new plan and with a kept one."""
    for unit in (3, 20_011):
        sizes = [unit * (other + 1) if other != 1 else 0 for other in range(size)]
        for dtype in (torch.float32, torch.bfloat16, torch.bool):
            for _ in range(2):
                parts = [torch.empty(each, dtype=dtype) for each in sizes]
                dist.all_gather(parts, of(rank, sizes[rank], dtype))
                for other, part in enumerate(parts):
                    assert torch.equal(part, of(other, sizes[other], dtype)), (unit, dtype, other)
        for dtype, op in ((torch.float32, dist.ReduceOp.SUM), (torch.int64, dist.ReduceOp.MAX)):
            given = [of(rank + at, each, dtype) for at, each in enumerate(sizes)]
            dist.reduce_scatter(output := torch.empty(sizes[rank], dtype=dtype), given, op)
            every = torch.stack([of(other + rank, sizes[rank], dtype) for other in range(size)])
            equal(output, OPERATORS[op](every))
        given = [of(rank, each).view(-1, 1) for each in sizes]
        dist.reduce_scatter(output := torch.empty(sizes[rank], 1), given, dist.ReduceOp.AVG)
        assert torch.allclose(output.view(-1), all_of(sizes[rank]).mean(0))
    turned = torch.empty(7, 5).t() if rank else torch.empty(5, 7)
    parts = [turned, *(torch.empty(4, 4 * other) for other in range(1, size))]
    mine = of(rank, parts[rank].numel()).view(parts[rank].shape)
    dist.all_gather(parts, mine)
    for other, part in enumerate(parts):
        equal(part.reshape(-1), of(other, part.numel()))


def asynchronous(rank, size):
    works = [(data := of(rank) * at, dist.all_reduce(data, async_op=True)) for at in range(5)]
    for at, (data, work) in enumerate(works):
        assert work.wait()
        assert work.is_completed()
        equal(data, all_of().sum(0) * at)
    doubled = dist.all_reduce(of(rank), async_op=True).get_future().then(lambda done: done.value()[0] * 2)
    equal(doubled.wait(), all_of().sum(0) * 2)
    from torch.distributed import _functional_collectives as functional

    group = dist.group.WORLD
    equal(functional.all_reduce(of(rank), "sum", group), all_of().sum(0))
    equal(functional.all_gather_tensor(of(rank), 0, group), all_of().view(-1))
    summed = functional.reduce_scatter_tensor(of(rank, size * COUNT), "sum", 0, group)
    equal(summed, all_of(size * COUNT).sum(0).chunk(size)[rank])
    # A barrier waits for what was asked for before, however small it is.
    several = [of(rank, count) for count in (7, COUNT) for _ in range(30)]
    for data in several:
        dist.all_reduce(data, async_op=True)
    dist.barrier()
    for data in several:
        equal(data, all_of(len(data)).sum(0))


def arguments(rank, size):
    """A rank's own mistake is reported at once, in gloo's words."""
    group, one, small = dist.group.WORLD, of(rank), of(rank, 7)
    group.broadcast(data := small.clone(), root=1).wait()
    equal(data, of(1, 7))
    group.allreduce([data := small.clone()], op=dist.ReduceOp.MAX).wait()
    equal(data, all_of(7).amax(0))
    row, wrong = [one] * size, dist.BroadcastOptions()
    wrong.rootRank = size
    for call in (
        lambda: group.allreduce([]),
        lambda: group.allreduce_coalesced([]),
        lambda: group.broadcast([one], wrong),
        lambda: group.allgather([row, row], [one]),
        lambda: group.reduce_scatter([one, one], [row, row]),
        lambda: group.gather([row[1:]] if rank == 0 else [row], [one]),
        lambda: group.scatter([one], [[small] * size]),
    ):
        try:
            call()
        except RuntimeError as error:
            assert "gloo" in str(error).lower() or "only supports 1" in str(error), error
            continue
        raise AssertionError("wrong arguments were not refused")
    group.set_timeout(timedelta(seconds=77))
    assert group._limit_s(timedelta(0)) == 77


def subgroups(rank, size):
    members = [0, size - 1]
    group = dist.new_group(members)
    if rank in members:
        dist.all_reduce(data := of(rank), group=group)
        equal(data, of(0) + of(size - 1))
    dist.all_reduce(data := of(rank))
    equal(data, all_of().sum(0))


def trained(group, rank):
    """The parameters after some steps of a small model whose gradients ``group`` reduces."""
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(100, 300), nn.ReLU(), nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 10))
    replica = DistributedDataParallel(model, process_group=group, bucket_cap_mb=0.2)
    optimizer = torch.optim.SGD(replica.parameters(), lr=0.1, momentum=0.9)
    torch.manual_seed(rank)
    for _ in range(4):
        optimizer.zero_grad()
        replica(torch.randn(8, 100)).square().mean().backward()
        optimizer.step()
    return torch.cat([parameter.detach().view(-1) for parameter in model.parameters()])


def data_parallel(rank, size):
    pair = [0, 1]
    groups = [dist.new_group(pair, backend=name) for name in ("ccctl", "gloo")]
    if rank in pair:
        ours, theirs = (trained(group, rank) for group in groups)
        assert torch.equal(ours, theirs)
    ours, theirs = trained(None, rank), trained(dist.new_group(backend="gloo"), rank)
    assert torch.allclose(ours, theirs, atol=1e-6)


def fully_sharded(rank, size):
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256))
    torch.manual_seed(3)
    alone = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=dist.init_device_mesh("cpu", (size,)))
    fully_shard(model, mesh=dist.init_device_mesh("cpu", (size,)))
    ours, theirs = (torch.optim.SGD(one.parameters(), lr=0.1) for one in (model, alone))
    for step in range(2):
        torch.manual_seed(step)
        batch = torch.randn(size * 4, 256)
        ours.zero_grad(), theirs.zero_grad()
        model(batch.chunk(size)[rank]).square().mean().backward()
        alone(batch).square().mean().backward()
        ours.step(), theirs.step()
    for one, other in zip(model.parameters(), alone.parameters(), strict=True):
        assert torch.allclose(one.full_tensor(), other, atol=1e-5)


def measured(rank, size):
    """Results are the same by gloo until plans are ready, by both ways in turn, then by the faster one."""
    at = 0
    # All ranks find out at the same call.
    while not dist.group.WORLD.decided:
        at += 1
        data = of(rank) * (at % 7)
        dist.all_reduce(data)
        equal(data, all_of().sum(0) * (at % 7))
    assert at > 6
    assert set(dist.group.WORLD.decided.values()) <= {"ccctl", "gloo"}
    assert len(dist.group.WORLD.decided) == 1


def killed(rank, size):
    """One rank dies in the middle; the others are told so, and what they ask for later fails as well."""
    dist.all_reduce(of(rank))
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    for _ in range(2):
        try:
            dist.all_reduce(of(rank))
        except RuntimeError:
            continue
        raise AssertionError("a collective of a lost rank was done")
    print("told")
    sys.stdout.flush()
    os._exit(0)


def unlocked(rank, size):
    """While plans move data, a thread of Python goes on."""
    from exec.mpi import interpreter

    counted, gained = 0, []

    def watched(loop, *arguments):
        before = counted
        state = loop(*arguments)
        gained.append(counted - before)
        return state

    runner = interpreter.runner
    interpreter.runner = lambda *arguments: partial(watched, runner(*arguments))
    interpreter.advance = partial(watched, interpreter.advance)
    dist.all_reduce(torch.ones(4_000_000))
    # No thread is made to give up Python's lock: another one runs where it is given up.
    sys.setswitchinterval(1e6)
    work = dist.all_reduce(data := torch.ones(4_000_000), async_op=True)
    while not work.is_completed():
        counted += 1
        time.sleep(0)
    work.wait()
    equal(data, torch.full((4_000_000,), float(size)))
    assert sum(gained) > 0, f"nothing was counted while data moved in {len(gained)} calls"


def groups_while_others_are_under_way(rank, size):
    """Collectives in flight while groups are made, and groups that threads are the first to use."""
    group = dist.group.WORLD
    for _ in range(4):
        work = dist.all_reduce(data := of(rank), group=group, async_op=True)
        if rank == 0:
            work.wait()
        group = dist.new_group()
        work.wait()
        equal(data, all_of().sum(0))
    groups, found = [dist.new_group() for _ in range(3)], {}

    def of_thread(at):
        for _ in range(5):
            dist.all_reduce(data := of(rank), dist.ReduceOp.MAX, group=groups[at])
        found[at] = data

    threads = [threading.Thread(target=of_thread, args=(at,)) for at in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for at in range(3):
        equal(found[at], all_of().amax(0))


def splits_on_one_rank(rank, size):
    """Whether a rank splits its buffer, and into what, the others do not know."""
    given, found = of(rank, size * COUNT), torch.empty(size * COUNT)
    splits = [COUNT] * size if rank == 0 else None
    dist.all_to_all_single(found, given, splits, splits)
    equal(found, torch.cat([row.chunk(size)[rank] for row in all_of(size * COUNT)]))
    # Nobody sees how large the block is that a rank gives itself: some are small enough for gloo alone.
    blocks = [7] * size
    blocks[rank] = COUNT if rank == 0 else 1
    dist.all_to_all_single(found := torch.empty(sum(blocks)), torch.ones(sum(blocks)), blocks, blocks)
    equal(found, torch.ones(sum(blocks)))


def usable_after_what_is_refused(rank, size):
    """An argument that all ranks get wrong is refused, and the next call is carried out."""
    whole, one = [of(rank) for _ in range(size)], of(rank)
    calls = (
        lambda: dist.all_reduce(torch.full((1,), 2.0).expand(COUNT)),
        lambda: dist.all_reduce(torch.full((1,), 2.0).expand(7)),
        lambda: dist.broadcast(torch.ones(1).expand(COUNT), 0),
        lambda: dist.all_reduce_coalesced([one, torch.ones(1).expand(COUNT)]),
        lambda: dist.all_gather([torch.zeros(1).expand(COUNT)] * size, one),
        lambda: dist.reduce_scatter_tensor(torch.zeros(1).expand(COUNT), of(rank, size * COUNT)),
        lambda: dist.all_gather(whole, of(rank, COUNT + 2)),
        lambda: dist.all_gather(whole[1:], one),
        lambda: dist.all_gather_into_tensor(of(rank, size * COUNT + 1), one),
        lambda: dist.all_gather_into_tensor(of(rank, size * COUNT, torch.int64), one),
        lambda: dist.reduce_scatter_tensor(one, of(rank, size * COUNT + 2)),
        lambda: dist.all_to_all_single(of(rank, size * COUNT + 1), of(rank, size * COUNT + 1)),
        lambda: dist.all_to_all_single(
            of(rank, size * COUNT), of(rank, size * COUNT), [1] * size, [1] * size
        ),
        lambda: dist.broadcast(one, size + 3),
        lambda: dist.all_reduce(of(rank, dtype=torch.int32), dist.ReduceOp.AVG),
        lambda: dist.all_reduce_coalesced([]),
    )
    for number, call in enumerate(calls):
        try:
            call()
        except (RuntimeError, ValueError, IndexError):
            dist.all_reduce(data := of(rank))
            equal(data, all_of().sum(0))
            continue
        raise AssertionError(f"call {number} was not refused")


def odd_tensors(rank, size):
    """Tensors that may be written only in some places, or that share their memory."""
    with torch.inference_mode():
        inference = [of(rank), of(rank, 60_000).view(200, 300).t()]
    for data in inference:
        expected = all_of(data.numel()).sum(0)
        dist.all_reduce(data)
        equal(data.t().reshape(-1) if data.dim() > 1 else data, expected)
    leaf = of(rank).requires_grad_()
    dist.all_reduce(leaf)
    equal(leaf.detach(), all_of().sum(0))
    one = torch.zeros(COUNT)
    dist.all_gather([one] * size, of(rank))
    equal(one, of(size - 1))


def split_by_a_group(rank, size):
    """Halves of the world, as `ProcessGroup.split_group` makes them."""
    halves = [list(range(size // 2)), list(range(size // 2, size))]
    mine = next(half for half in halves if rank in half)
    group = dist.group.WORLD.split_group(mine, group_name=f"half of {mine[0]}")
    assert (group.rank(), group.size()) == (mine.index(rank), len(mine))
    group.allreduce([data := of(rank)]).wait()
    equal(data, sum(of(other) for other in mine))


def destroyed_at_once(rank, size):
    """Gloo fails on a rank that still connects when another leaves; torch makes groups without a barrier."""
    connect, store = TorchGroup._gloo, dist.distributed_c10d._get_default_store()

    def connect_late(self, name):
        group = connect(self, name)
        time.sleep(0.5)
        store.set(f"rank 0 has connected {name}", "")
        return group

    if rank == 0:
        TorchGroup._gloo = connect_late
    group = dist.new_group()
    TorchGroup._gloo = connect
    dist.destroy_process_group(group)
    assert store.check(["rank 0 has connected queued"])


def missing(rank, size):
    """A rank that does not call is named by the others."""
    dist.all_reduce(of(rank))
    group = dist.new_group(timeout=timedelta(seconds=8))
    dist.all_reduce(of(rank), group=group)
    if rank == 1:
        time.sleep(20)
        os._exit(0)
    try:
        dist.all_reduce(of(rank), group=group)
    except RuntimeError as error:
        print(error, flush=True)
        os._exit(0)
    raise AssertionError("a collective was done without a rank")


def reduced(rank, size):
    dist.all_reduce(data := of(rank))
    equal(data, all_of().sum(0))


CASES = {
    "unequal": (unequal,),
    "collectives": (reductions, movements, asynchronous, subgroups, data_parallel, fully_sharded),
    "measured": (measured, arguments),
    "killed": (killed,),
    "legal": (
        groups_while_others_are_under_way,
        splits_on_one_rank,
        usable_after_what_is_refused,
        odd_tensors,
        split_by_a_group,
        destroyed_at_once,
    ),
    "missing": (missing,),
    "launched": (reduced,),
    "unlocked": (unlocked,),
}


def without_mpi():
    """From here on it is as where no MPI is installed; nothing has imported mpi4py so far."""
    assert "mpi4py" not in sys.modules
    sys.modules["mpi4py"] = None
    os.environ["PATH"] = ""


def main():
    torch.set_num_threads(1)
    if "MASTER_PORT" in os.environ:
        without_mpi()
    if os.environ.get("APART"):
        apart.over(os.environ["APART"], os.environ["RANK"])
    where = {"init_method": "ccctl://"} if sys.argv[1] == "launched" else {}
    dist.init_process_group("cpu:ccctl" if sys.argv[1] == "measured" else "ccctl", **where)
    for case in CASES[sys.argv[1]]:
        case(dist.get_rank(), dist.get_world_size())
        print(case.__name__, flush=True)
    group = weakref.ref(dist.group.WORLD)
    dist.destroy_process_group()
    # The data processes that a script forks later must not find it among what they collect. The meshes of
    # devices that FSDP2 made hold it as long as the process lives, with any backend.
    assert group() is None or fully_sharded in CASES[sys.argv[1]]
    assert "mpi4py.MPI" not in sys.modules


if __name__ == "__main__":
    main()
