"""A sweep for a runtime as text: each size beside stock NCCL."""

from types import SimpleNamespace

from ccctl.render.text.loaded import draw
from synth import synthesize
from synth.compiler import lower
from synth.networks import pod
from synth.portfolio import LoadedRange
from synth.portfolio.synthesis import LoadedPoint


def test_each_size_has_its_time_in_the_runtime_and_that_of_stock_nccl():
    found = synthesize(pod("dgx-h100:1"), "all_reduce", 1 << 20, method="direct")
    times_s = {1 << 16: 1e-6, 1 << 26: 1.0}
    points = tuple(LoadedPoint(size, 99.0, 99.0, "", time_s) for size, time_s in times_s.items())
    one = LoadedRange(1 << 16, 1 << 26, "direct", 1, lower(found.schedule), None, points)
    schedule = SimpleNamespace(network=found.schedule.network, collective=found.schedule.whole)
    lines: list[str] = []
    draw(SimpleNamespace(schedule=schedule, ranges=(one,)), "msccl", None, lines.append)
    head = next(line for line in lines if "stock NCCL" in line)
    small, large = lines[lines.index(head) + 1 :][:2]
    assert head.split()[-4:] == ["optimal", "predicted", "stock", "NCCL"]
    assert small.startswith("64K") and "1 us" in small and "NCCL is faster" not in small
    assert large.startswith("64M") and large.endswith("NCCL is faster")
    assert "not worth loading, as stock NCCL is faster by its own model: 64M" in lines
