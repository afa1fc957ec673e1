"""Tuner files of NCCL and RCCL: held against the rules of the plugin's own parser, trap by trap."""

import pytest
from nccl_tables import LARGE, SMALL, tried

from exec.library_rules.nccl import Setting, environment, lines_of, merged, read_lines, write_lines
from probes.base.errors import DataError, UsageError

LARGEST = (1 << 64) - 1


def example_plugin(text, collective, size, nodes, ranks):
    """(algorithm, protocol, channels) that NVIDIA's example tuner takes (plugins/tuner/example/plugin.c).

    As it stands in NCCL 2.30: unknown words silently become allreduce, ring and simple; the first line that
    fits counts; what no line fits, and -1 channels, runs on one channel.
    """
    known = ("broadcast", "reduce", "allgather", "reducescatter", "allreduce")
    for line in text.splitlines():
        if line.startswith("#") or not line.strip():
            continue
        assert len(line) <= 255
        cells = line.split(",")
        if len(cells) < 8:
            continue
        kind = cells[0] if cells[0] in known else "allreduce"
        fits = kind == collective and int(cells[1]) <= size <= int(cells[2])
        fits &= int(cells[6]) in (-1, nodes) and int(cells[7]) in (-1, ranks)
        if fits:
            channels = int(cells[5])
            return cells[3], cells[4], 1 if channels == -1 else channels
    return "", "", 1


@pytest.mark.parametrize("size", [1, 1 << 10, 1 << 20, 1 << 30, 1 << 33, LARGEST])
def test_every_size_has_a_line_with_channels(size):
    text = write_lines(lines_of([SMALL, LARGE]), ["measured"])
    algorithm, _, channels = example_plugin(text, "allreduce", size, 2, 16)
    assert (algorithm, channels) == (("tree", 4) if size < 1 << 15 else ("ring", 16))


def test_bounds_meet_without_a_gap():
    ((low, high), (after, end)) = [
        tuple(int(cell) for cell in line.split(",")[1:3])
        for line in next(iter(lines_of([SMALL, LARGE]).values()))
    ]
    assert (low, after, end) == (0, high + 1, LARGEST)


def test_the_header_is_a_comment():
    text = write_lines(lines_of([SMALL]))
    assert text.startswith("# collective_type,")
    assert read_lines(text, "tuner.csv") == lines_of([SMALL])


def test_a_header_that_is_none_is_refused():
    with pytest.raises(DataError, match="line 1"):
        read_lines("collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks\n", "x")


def test_merging_keeps_other_worlds_and_rules_for_any_come_last():
    old = read_lines(
        "allreduce,0,99,tree,ll,2,2,16\nallreduce,0,99,ring,ll,2,-1,-1\nallgather,0,99,ring,ll,2,2,16", "old"
    )
    text = write_lines(merged(old, lines_of([LARGE])))
    assert example_plugin(text, "allreduce", 10, 2, 16) == ("ring", "simple", 16)
    assert example_plugin(text, "allreduce", 10, 4, 32) == ("ring", "ll", 2)
    assert example_plugin(text, "allgather", 10, 2, 16) == ("ring", "ll", 2)
    assert ",tree,ll,2,2,16" not in text


def test_the_environment_says_what_does_not_depend_on_the_size():
    gathered = tried("ring:ll128:8", {1 << 10: 1.0}, kind="all_gather")
    assert environment(lines_of([LARGE, gathered])) == [
        'NCCL_ALGO="AllReduce:ring;AllGather:ring"',
        'NCCL_PROTO="AllReduce:simple;AllGather:ll128"',
    ]
    with pytest.raises(UsageError, match="2 fastest settings"):
        environment(lines_of([SMALL, LARGE]))


@pytest.mark.parametrize(
    "text", ["ring", "ring:simple", "ring:simple:0", "ring:simple:many", "best:simple:4"]
)
def test_a_setting_that_the_tuner_does_not_know_is_refused(text):
    with pytest.raises(UsageError, match="expected"):
        Setting.of(text)


def test_tables_of_other_worlds_are_refused():
    with pytest.raises(UsageError, match="different numbers of ranks"):
        lines_of([SMALL, tried("ring:simple:16", {1 << 10: 1.0}, ranks=8)])


def test_nothing_in_common_is_refused():
    with pytest.raises(UsageError, match="no size of all_reduce"):
        lines_of([SMALL, tried("ring:simple:16", {3: 1.0})])
