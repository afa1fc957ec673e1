"""The entries of a runtime: ranges without gaps, each with the program that is the fastest there."""

from dataclasses import replace
from itertools import pairwise

import pytest

from probes.base.errors import UsageError
from synth import synthesize
from synth.check.program import judge
from synth.msccl.limits import beyond
from synth.msccl.read import read_xml
from synth.msccl.write import write_xml
from synth.networks.dgx import pod
from synth.portfolio.runtime_sizes import runtime_sweep
from synth.portfolio.size_sweep import sizes_between
from synth.simulation.protocols import PROTOCOLS, time_by

SIZES = sizes_between(1 << 10, 1 << 28, 16)


@pytest.fixture(scope="module")
def selection():
    return synthesize(pod("dgx-1"), "all_reduce", sizes=SIZES, method="ring").schedule


@pytest.fixture(scope="module")
def entries(selection):
    return runtime_sweep(selection, instances=(1, 2))


def test_ranges_follow_each_other_and_are_in_the_programs(entries):
    assert (entries[0].from_bytes, entries[-1].to_bytes) == (SIZES[0], SIZES[-1])
    for one, other in pairwise(entries):
        assert other.from_bytes == one.to_bytes + 1
    for entry in entries:
        assert (entry.program.min_bytes, entry.program.max_bytes) == (entry.from_bytes, entry.to_bytes)
        assert judge(entry.program) == []
        assert beyond(entry.program, "msccl") == []
        read = read_xml(write_xml(entry.program), "it")
        assert (read.min_bytes, read.max_bytes) == (entry.from_bytes, entry.to_bytes)
        assert read.protocol == entry.program.protocol


def test_the_protocol_follows_the_size(entries):
    assert entries[0].program.protocol == "LL"
    assert entries[-1].program.protocol == "Simple"


def test_nothing_else_that_was_tried_is_faster(selection, entries):
    for entry in entries:
        for point in entry.points:
            for protocol in PROTOCOLS:
                other_s = time_by(protocol, entry.program, selection.network, point.size_bytes)
                assert point.time_s <= other_s * 1.006
            assert point.time_s <= point.plain_s * 1.006


def test_where_a_library_is_faster_there_is_no_program(selection):
    ranges = tuple(replace(one, library="nccl") for one in selection.ranges)
    found = runtime_sweep(replace(selection, ranges=ranges), instances=(1,))
    assert [(entry.program, entry.why) for entry in found] == [(None, "nccl is faster")]


def test_an_unknown_runtime_is_refused(selection):
    with pytest.raises(UsageError, match="expected msccl, rccl, mscclpp"):
        runtime_sweep(selection, "nccl")
