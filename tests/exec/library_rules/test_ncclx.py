"""Tuner files of NCCLX, read as its CsvConfigParse.h, ConfigParse.h and Int64Range.h read them."""

import json
import re
from dataclasses import replace

import pytest
from nccl_tables import LARGE, SMALL

from exec.library_rules.nccl import lines_of
from exec.library_rules.ncclx import csv_text, json_text
from probes.base.errors import UsageError

WORDS = {
    0: {"broadcast", "reduce", "allgather", "reducescatter", "allreduce"},
    2: {"tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"},
    3: {"ll", "ll128", "simple"},
}


def inside(interval, value):
    """Int64Range: [a,b] and its like, an open end, a number, *."""
    if interval == "*":
        return True
    if isinstance(interval, int) or interval.isdecimal():
        return value == int(interval)
    low, high = interval[1:-1].split(",")
    above = not low or (value >= int(low) if interval[0] == "[" else value > int(low))
    return above and (not high or (value <= int(high) if interval[-1] == "]" else value < int(high)))


def rules_of_csv(text):
    """Every line or none: a field that is not understood ends the initialization."""
    rules = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        # Commas within brackets divide no fields.
        fields = re.findall(r"(?:\[[^\])]*[\])]|[^,\[])+", line)
        assert len(fields) == 7
        assert all(fields[at] in words for at, words in WORDS.items())
        rules.append((fields[0], fields[1], fields[2], fields[3], int(fields[4]), fields[5], fields[6]))
    return rules


def taken(rules, collective, total_bytes, nodes, local):
    return next(
        (
            rule[2:5]
            for rule in rules
            if rule[0] == collective
            and inside(rule[1], total_bytes // (nodes * local))
            and inside(rule[5], nodes)
            and inside(rule[6], local)
        ),
        None,
    )


@pytest.fixture
def table():
    return lines_of([SMALL, LARGE])


def test_the_fastest_setting_is_taken_at_every_size(table):
    rules = rules_of_csv(csv_text(table, ["a note"]))
    assert taken(rules, "allreduce", 1 << 10, 2, 8) == ("tree", "ll", 4)
    assert taken(rules, "allreduce", 1 << 20, 2, 8) == ("ring", "simple", 16)
    assert taken(rules, "allreduce", 0, 2, 8) == ("tree", "ll", 4)
    # Bounds are bytes of one rank, and the last rule has no end.
    assert taken(rules, "allreduce", 1 << 50, 2, 8) == ("ring", "simple", 16)
    assert (
        taken(rules, "allreduce", 1 << 20, 4, 8) is None and taken(rules, "allgather", 1 << 20, 2, 8) is None
    )


def test_no_size_lies_between_two_rules(table):
    rules = rules_of_csv(csv_text(table))
    assert all(taken(rules, "allreduce", size, 2, 8) for size in range((1 << 19), (1 << 19) + 4096, 7))


def test_the_header_is_a_comment(table):
    assert csv_text(table).startswith("# collective,bytesPerRank")


def test_json_says_the_same(table):
    document = json.loads(json_text(table))
    rules = [
        (
            one["filter"]["collective"],
            one["filter"]["bytesPerRank"],
            one["config"]["algorithm"],
            one["config"]["protocol"],
            one["config"]["channels"],
            one["filter"]["nNodes"],
            one["filter"]["nLocalRanks"],
        )
        for one in document["rules"]
    ]
    assert [tuple(map(str, rule)) for rule in rules] == [
        tuple(map(str, rule)) for rule in rules_of_csv(csv_text(table))
    ]


def test_nodes_of_unequal_ranks_are_refused():
    uneven = [replace(one, report=replace(one.report, hosts=("h0", "h1", "h2"))) for one in (SMALL, LARGE)]
    with pytest.raises(UsageError, match="equally many ranks"):
        csv_text(lines_of(uneven))
