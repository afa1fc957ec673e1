"""The algorithms of UCC's component TL/UCP by size: UCC_TL_UCP_TUNE, in a configuration file of UCC.

A value is a list of tokens with # between them, such as ``allreduce:host:0-4096:[8]:inf:@knomial``: for host
memory, from 0 bytes to below 4096, on 8 ranks. ``inf`` as the score means that TL/UCP serves these calls, not
another component. Where two ranges of the same score meet, the size at the boundary belongs to the second
range. If the scores differ, this size belongs to the range of the higher score. So a range that is followed
by UCC's own choice ends one byte earlier. Tokens for one collective, memory and number of ranks must not
overlap, or UCC takes none of the value.

The rules are those of openucx/ucc 8263de47 (1.10): ``src/coll_score``, ``src/components/tl/ucp``,
``ucc_coll_args_msgsize`` in ``src/utils/ucc_coll_utils.c``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from exec.library_rules.choice import AlgorithmTimes, MeasuredSetting, points_of, rules_of
from probes.base import UsageError
from synth.collective import Kind

__all__ = ["ALGORITHMS", "DEFAULT", "tokens_of", "variables"]

# The name of UCC's own choice, in place of an algorithm.
DEFAULT = "default"
_NAMES: dict[Kind, str] = {
    "all_gather": "allgather",
    "all_reduce": "allreduce",
    "all_to_all": "alltoall",
    "broadcast": "bcast",
    "reduce": "reduce",
    "reduce_scatter": "reduce_scatter",
}
ALGORITHMS: dict[Kind, tuple[str, ...]] = {
    "all_gather": ("knomial", "ring", "neighbor", "bruck", "sparbit", "linear", "batched"),
    "all_reduce": ("knomial", "sra_knomial", "dbt", "sliding_window", "ring"),
    "all_to_all": ("pairwise", "bruck", "onesided"),
    "broadcast": ("knomial", "sag_knomial", "dbt"),
    "reduce": ("knomial", "dbt", "srg"),
    "reduce_scatter": ("ring", "knomial"),
}
# The memory of the buffers, by the second word of the title that the OSU benchmarks print.
_MEMORY = {"MPI": "host", "MPI-CUDA": "cuda", "MPI-ROCM": "rocm"}


def tokens_of(tried: Sequence[MeasuredSetting]) -> list[str]:
    """Return the tokens that select the fastest algorithm for every size, by collective, memory and ranks.

    ``default`` among the settings is UCC's own choice, which needs no token. Sizes that some of the tables
    lack are ignored. Raises UsageError if there are no tables, if a table is not of MPI or names an algorithm
    that its collective lacks, or if no size of a collective is in all of its tables.
    """
    if not tried:
        raise UsageError("no table of the OSU benchmarks was given")
    worlds: dict[tuple[str, int], list[MeasuredSetting]] = {}
    for table in tried:
        _require_known(table)
        worlds.setdefault((_memory(table), table.report.ranks), []).append(table)
    return [
        token
        for (memory, ranks), settings in sorted(worlds.items())
        for kind, points in points_of(settings, _NAMES).items()
        for token in _tokens(kind, points, memory, ranks)
    ]


def _require_known(table: MeasuredSetting) -> None:
    for kind in {row.collective for row in table.report.rows if row.collective in ALGORITHMS}:
        if table.setting not in (DEFAULT, *ALGORITHMS[kind]):
            raise UsageError(
                f"{table.setting}={table.source}: TL/UCP has no such algorithm of {kind}",
                hint=f"It has {', '.join(ALGORITHMS[kind])}; {DEFAULT} is UCC's own choice.",
            )


def _memory(table: MeasuredSetting) -> str:
    words = table.report.library.split()
    if words[:1] != ["OSU"] or words[1:2] == [] or words[1] not in _MEMORY:
        raise UsageError(
            f"{table.source}: expected a table of the OSU benchmarks for MPI, found {table.report.library}"
        )
    return _MEMORY[words[1]]


def _tokens(kind: Kind, points: Sequence[AlgorithmTimes], memory: str, ranks: int) -> Iterator[str]:
    # A size in UCC is the bytes that a rank receives; a size in the tables is the larger of its buffers.
    part = ranks if kind == "reduce_scatter" else 1
    rules = rules_of(points, DEFAULT)
    for rule, after in pairwise((*rules, None)):
        assert rule is not None
        if rule.algorithm == DEFAULT:
            continue
        begin, end = rule.from_bytes // part, "inf"
        if after is not None:
            end = str(after.from_bytes // part - (after.algorithm == DEFAULT))
        if after is None or begin < int(end):
            yield f"{_NAMES[kind]}:{memory}:{begin}-{end}:[{ranks}]:inf:@{rule.algorithm}"


def variables(tokens: Sequence[str]) -> list[str]:
    """Return the variable with its value; nothing if there are no tokens."""
    return [f"UCC_TL_UCP_TUNE={'#'.join(tokens)}"] if tokens else []
