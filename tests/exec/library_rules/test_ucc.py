"""UCC's configuration: held against UCC's own parser, its map of scores and its look-up, rule by rule."""

import math
import random
from itertools import pairwise

import pytest

from exec.benchmark.report import Measurement, Report, Row
from exec.library_rules.choice import MeasuredSetting, points_of, rules_of
from exec.library_rules.ucc import ALGORITHMS, DEFAULT, tokens_of, variables
from probes.base.errors import UsageError

KINDS = {
    "all_gather": "allgather",
    "all_reduce": "allreduce",
    "all_to_all": "alltoall",
    "broadcast": "bcast",
    "reduce": "reduce",
    "reduce_scatter": "reduce_scatter",
}
MEMORIES = ("host", "cuda", "cuda_managed", "rocm", "rocm_managed")
# The scores of TL/UCP where nothing is set, and of "inf".
OWN, FORCED = 10, (1 << 31) - 1


class RefusedError(Exception):
    """UCC takes nothing of the value."""


def ranges_of(value, kind, memory, ranks):
    """The ranges (start, end, score, algorithm) that ucc_coll_score_alloc_from_str makes of a value.

    As in src/coll_score/ucc_coll_score.c: each field of a token is tried as each qualifier that the token
    does not have yet; a token for other numbers of ranks is skipped; ranges that overlap refuse the value.
    """
    found = []
    for token in filter(None, value.split("#")):
        fields = {}
        for field in filter(None, token.split(":")):
            words = field.split(",")
            if "kinds" not in fields and all(word in KINDS.values() for word in words):
                fields["kinds"] = words
            elif "memories" not in fields and all(word in MEMORIES for word in words):
                fields["memories"] = words
            elif "score" not in fields and (field == "inf" or field.isdigit()):
                fields["score"] = FORCED if field == "inf" else int(field)
            elif (
                "sizes" not in fields
                and all(len(word.split("-")) == 2 for word in words)
                and "[" not in field
            ):
                fields["sizes"] = [tuple(map(bytes_of, word.split("-"))) for word in words]
            elif "ranks" not in fields and field[0] == "[" and field[-1] == "]":
                ends = [word.split("-") for word in field[1:-1].split(",")]
                fields["ranks"] = [(int(one[0]), int(one[-1])) for one in ends]
            elif "algorithm" not in fields and field[0] == "@":
                fields["algorithm"] = field[1:]
            else:
                raise RefusedError(f"failed to parse {field!r}")
        if not any(low <= ranks <= high for low, high in fields.get("ranks", [(0, 1 << 32)])):
            continue
        for name in fields.get("kinds", KINDS.values()):
            ours = next(kind for kind in KINDS if KINDS[kind] == name)
            if fields["algorithm"] not in ALGORITHMS[ours]:
                raise RefusedError(f"incorrect algorithm {fields['algorithm']} of {name}")
            if name != KINDS[kind] or memory not in fields.get("memories", MEMORIES):
                continue
            for start, end in fields.get("sizes", [(0, math.inf)]):
                if start >= end:
                    raise RefusedError("an empty range")
                found.append((start, end, fields.get("score", OWN), fields["algorithm"]))
    found.sort()
    if any(one[1] > two[0] for one, two in pairwise(found)):
        raise RefusedError("overlapping ranges")
    return found


def bytes_of(word):
    """A size as ucs_str_to_memunits reads it, without units."""
    return math.inf if word == "inf" else int(word)


def algorithm_of(value, kind, memory, ranks, msgsize):
    """The algorithm that a call takes; DEFAULT where UCC chooses.

    Sizes between ranges stay UCC's own (ucc_coll_score_update_one). Where two ranges meet, the second one
    gets the size unless the first has the higher score (ucc_coll_score_build_map); ends are included
    (ucc_coll_score_map_lookup).
    """
    ranges, at = [], 0
    for start, end, score, algorithm in [
        *ranges_of(value, kind, memory, ranks),
        (math.inf, math.inf, OWN, DEFAULT),
    ]:
        if at < start:
            ranges.append([at, start, OWN, DEFAULT])
        ranges.append([start, end, score, algorithm])
        at = end
    for one, two in pairwise(ranges):
        if one[1] == two[0] < math.inf:
            if one[2] > two[2]:
                two[0] += 1
            else:
                one[1] -= 1
    return next(algorithm for start, end, _, algorithm in ranges if start <= msgsize <= end)


def tried(setting, times, kind="all_reduce", ranks=8, library="OSU MPI 7.4"):
    rows = tuple(
        Row(
            kind,
            size,
            size // 4,
            "float32",
            "sum",
            -1,
            "osu",
            None,
            Measurement(t, t, t, -1, 0, 0, 0),
            None,
            {},
        )
        for size, t in times.items()
    )
    return MeasuredSetting(setting, Report(ranks, (), "osu", library, 0, 0, rows), f"{setting}.log")


def value_of(settings):
    """The value of the only variable, "" if none is set."""
    lines = variables(tokens_of(settings))
    assert all(line.startswith("UCC_TL_UCP_TUNE=") for line in lines)
    return lines[0].partition("=")[2] if lines else ""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_every_size_runs_what_was_fastest(kind, seed):
    draw = random.Random(f"{kind} {seed}")
    names = [*draw.sample(ALGORITHMS[kind], 2), DEFAULT]
    sizes = [1 << power for power in range(6, 26, 2)]
    settings = [tried(name, {size: draw.uniform(1, 3) for size in sizes}, kind) for name in names]
    value = value_of(settings)
    (points,) = points_of(settings, KINDS).values()
    rules = rules_of(points, DEFAULT)
    assert len({rule.algorithm for rule in rules}) > 1
    around = {rule.from_bytes + step for rule in rules for step in (-8, 0, 8)} | {1, *sizes, 1 << 40}
    for size in sorted(size for size in around if size > 0):
        want = [rule.algorithm for rule in rules if rule.from_bytes <= size][-1]
        # UCC counts the bytes that a rank receives; whole elements only, so that sizes divide.
        part = 8 if kind == "reduce_scatter" else 1
        if size % part == 0 and all(rule.from_bytes % part == 0 for rule in rules):
            assert algorithm_of(value, kind, "host", 8, size // part) == want, (size, value)


def test_other_calls_keep_what_ucc_chooses():
    value = value_of([tried("ring", {64: 1.0}), tried(DEFAULT, {64: 2.0})])
    assert algorithm_of(value, "all_reduce", "host", 8, 64) == "ring"
    assert algorithm_of(value, "all_reduce", "host", 7, 64) == DEFAULT
    assert algorithm_of(value, "all_reduce", "cuda", 8, 64) == DEFAULT
    assert algorithm_of(value, "all_gather", "host", 8, 64) == DEFAULT


def test_several_numbers_of_ranks_and_memories_share_a_value():
    value = value_of(
        [
            tried("ring", {64: 1.0}),
            tried("knomial", {64: 1.0}, ranks=16),
            tried("dbt", {64: 1.0}, library="OSU MPI-CUDA 7.4"),
            tried("bruck", {64: 1.0}, "all_gather"),
        ]
    )
    assert [
        algorithm_of(value, *call, 64)
        for call in (
            ("all_reduce", "host", 8),
            ("all_reduce", "host", 16),
            ("all_reduce", "cuda", 8),
            ("all_gather", "host", 8),
        )
    ] == ["ring", "knomial", "dbt", "bruck"]


def test_ucc_keeps_its_choice_unless_another_is_two_percent_faster():
    assert tokens_of([tried("ring", {64: 0.99}), tried(DEFAULT, {64: 1.0})]) == []
    assert variables([]) == []


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ([], "no table"),
        ([tried("bruck", {64: 1.0})], "no such algorithm of all_reduce"),
        (
            [tried("ring", {64: 1.0}, library="OSU NCCL 7.4")],
            "expected a table of the OSU benchmarks for MPI",
        ),
        ([tried("ring", {64: 1.0}), tried("dbt", {128: 1.0})], "no size of all_reduce"),
        ([tried("ring", {64: 1.0}, "gather")], "none of the tables"),
    ],
)
def test_what_gives_no_rule_is_refused(settings, why):
    with pytest.raises(UsageError, match=why):
        tokens_of(settings)


@pytest.mark.parametrize(
    "value", ["allreduce:0-8:@ring#allreduce:4-inf:@dbt", "allreduce:@bruck", "all_reduce:@ring"]
)
def test_the_parser_here_refuses_what_ucc_refuses(value):
    with pytest.raises(RefusedError):
        ranges_of(value, "all_reduce", "host", 8)
