"""Assignment of parameters to buckets."""

import math

import pytest

torch = pytest.importorskip("torch")

from exec.training.dear.bucket_assignment import buckets_of  # noqa: E402
from exec.training.dear.decoupled_all_reduce import Halves  # noqa: E402
from probes.base.errors import UsageError  # noqa: E402


def named(*sizes, dtype=torch.float32):
    return [
        (f"{at}.{part}", torch.nn.Parameter(torch.zeros(size, dtype=dtype)))
        for at, size in enumerate(sizes)
        for part in ("weight", "bias")
    ]


def names(rows, buckets):
    of = {id(each): name for name, each in rows}
    return [[of[id(each)] for each in bucket] for bucket in buckets]


def test_layers_are_not_divided_and_the_last_come_first():
    rows = named(10, 10, 10)
    assert names(rows, buckets_of(rows, 170)) == [
        ["1.weight", "1.bias", "2.weight", "2.bias"],
        ["0.weight", "0.bias"],
    ]
    assert names(rows, buckets_of(rows, 1)) == [[f"{at}.weight", f"{at}.bias"] for at in (2, 1, 0)]
    assert names(rows, buckets_of(rows, 0)) == [[name] for name, _ in reversed(rows)]
    assert len(buckets_of(rows, None)) == 1


def test_types_are_apart():
    rows = [*named(4), *((f"half.{name}", each) for name, each in named(4, dtype=torch.bfloat16))]
    assert [{each.dtype for each in bucket} for bucket in buckets_of(rows, None)] == [
        {torch.float32},
        {torch.bfloat16},
    ]


@pytest.mark.parametrize("plan", [-1, "25M", 2.5, True])
def test_what_is_no_plan_is_refused(plan):
    with pytest.raises(UsageError, match="number of bytes"):
        buckets_of(named(4), plan)


@pytest.mark.parametrize("native_from", [0, 64 << 10, math.inf])
@pytest.mark.parametrize(("count", "size"), [(1, 3), (1 << 20, 4), (3_000_001, 7)])
def test_pieces_are_multiples_of_the_ranks_and_small_where_they_are_exchanged(count, size, native_from):
    halves = Halves.__new__(Halves)
    halves.size, halves._native_from = size, native_from
    pieces = halves.lengths(count, 4)
    assert count <= sum(pieces) < count + size
    assert all(piece % size == 0 for piece in pieces)
    assert len(pieces) == 1 if sum(pieces) * 4 >= native_from else max(pieces) * 4 <= 4 << 20
