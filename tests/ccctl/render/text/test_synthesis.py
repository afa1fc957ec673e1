"""The result of a synthesis as lines: which schedule is kept, and its time."""

from dataclasses import replace

import pytest

from ccctl.render.text.synthesis import draw
from synth import synthesize
from synth.compiler import lower
from synth.networks import pod
from synth.networks.families import family
from synth.portfolio import Loaded


@pytest.mark.parametrize("limit", ["", "msccl: 300 steps, more than 256"])
def test_the_time_of_what_a_runtime_loads_is_shown_where_the_fastest_does_not_load(limit):
    found = synthesize(family("ring:4", [1e-6], [1e9]), "all_reduce", 1 << 20, method="ring")
    program = lower(found.schedule)
    loaded = Loaded("msccl", program, None, 100.0, limit, 100.0, 1)
    lines: list[str] = []
    draw(replace(found, loaded=loaded, why="the fastest that msccl can load"), lines.append)
    starred = [line for line in lines if line.startswith("* ")]
    kept = [line for line in lines if line.startswith("kept: ring, ")]
    assert (len(starred), len(kept)) == ((0, 1) if limit else (1, 0))
    if limit:
        assert kept[0].startswith("kept: ring, 4 chunks: 1.58 ms, algbw ")
        assert kept[0].endswith("GB/s (the fastest that msccl can load)")


def test_two_names_of_the_same_sends_are_one_row():
    found = synthesize(pod("dgx-h100:1"), "all_reduce", 1 << 12)
    assert {"direct", "all_pairs"} <= {one.maker for one in found.attempts}
    lines: list[str] = []
    draw(found, lines.append)
    assert sum("each rank to each other rank" in line for line in lines) == 1


@pytest.mark.parametrize(
    ("runtime_s", "verdict"),
    [
        (441e-6, ": not worth loading at this size"),
        (100e-6, " times as fast as NCCL's rings and trees (NVLS is not in its model)"),
    ],
)
def test_what_a_runtime_loads_is_compared_with_stock_nccl_first(runtime_s, verdict):
    found = synthesize(pod("dgx-h100:1"), "all_reduce", 1 << 26, method="direct")
    loaded = Loaded("msccl", lower(found.schedule), None, 100.0, "", 100.0, 1, time_s=runtime_s)
    lines: list[str] = []
    draw(replace(found, loaded=loaded), lines.append)
    assert lines[1].startswith(f"predicted {runtime_s * 1e6:.0f} us in MSCCL; stock NCCL's ")
    assert lines[1].endswith(verdict)
    assert not any(line.startswith("NCCL's ring") for line in lines)


def test_a_small_size_is_said_to_be_latency_of_links_only():
    found = synthesize(pod("dgx-h100:1"), "all_reduce", 1 << 12, method="direct")
    lines: list[str] = []
    draw(found, lines.append)
    (line,) = (line for line in lines if "without launch" in line)
    assert line.startswith("these times are the latency of links only, without launch; NCCL's ")
