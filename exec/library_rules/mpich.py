"""MPICH's selection table (MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE), changed for some ranks and sizes.

The table is a tree of conditions whose leaves name algorithms; MPICH follows the first condition that holds.
A file replaces the whole table, and a call that reaches no leaf ends the program. So the file written here is
the table inside the installed library, with rules added for communicators of the measured number of ranks.

MPICH runs the algorithm of a leaf without checking what it requires, so the requirements are conditions above
the leaf. Parameters are given below the leaf, because MPICH leaves missing ones uninitialized. Conditions on
the size of the communicator come before conditions on messages. MPICH's devices have collectives of their
own, which ignore this table; ``environment`` turns them off for collectives that have rules.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from exec.library_rules.choice import Rule
from probes.base import DataError
from probes.files import parse_document
from synth.collective import Kind

__all__ = [
    "COLLECTIVES",
    "LEFT_OUT",
    "MeasuredRules",
    "Table",
    "environment",
    "library_table",
    "parameters_of",
    "read_table",
    "with_rules",
    "write_table",
]

COLLECTIVES: dict[Kind, str] = {
    "all_gather": "allgather",
    "all_reduce": "allreduce",
    "all_to_all": "alltoall",
    "reduce_scatter": "reduce_scatter_block",
}
# The conditions on size that count bytes as nccl-tests does: the larger buffer of a rank.
_SIZE: dict[Kind, str] = {
    "all_gather": "total_msg_size",
    "all_reduce": "avg_msg_size",
    "all_to_all": "total_msg_size",
    "reduce_scatter": "total_msg_size",
}
# Conditions above a collective's rules, because the algorithms were measured with sums and out of place.
_GUARDS: dict[Kind, tuple[str, ...]] = {
    "all_gather": (),
    "all_reduce": ("is_commutative", "is_op_built_in"),
    "all_to_all": ("is_sendbuf_inplace",),
    "reduce_scatter": ("is_commutative",),
}
# The values of these conditions for the measured calls.
_HELD = {"is_commutative": "yes", "is_op_built_in": "yes", "is_sendbuf_inplace": "no"}
# Parameters of algorithms, and the suffixes of the control variables that hold them (coll_algorithms.txt).
_K, _PHASE = "k", "single_phase_recv"
_PARAMETERS: dict[tuple[Kind, str], dict[str, str]] = {
    ("all_reduce", "recursive_multiplying"): {_K: "RECURSIVE_MULTIPLYING_KVAL"},
    ("all_reduce", "recexch"): {_K: "RECEXCH_KVAL", _PHASE: "RECEXCH_SINGLE_PHASE_RECV"},
    ("all_reduce", "k_reduce_scatter_allgather"): {_K: "RECEXCH_KVAL", _PHASE: "RECEXCH_SINGLE_PHASE_RECV"},
    ("all_gather", "k_brucks"): {_K: "BRUCKS_KVAL"},
    ("all_gather", "recexch_doubling"): {_K: "RECEXCH_KVAL", _PHASE: "RECEXCH_SINGLE_PHASE_RECV"},
    ("all_gather", "recexch_halving"): {_K: "RECEXCH_KVAL", _PHASE: "RECEXCH_SINGLE_PHASE_RECV"},
    ("all_to_all", "k_brucks"): {_K: "BRUCKS_KVAL"},
}
# Algorithms that split the communicator themselves, or whose parameters the table cannot give.
LEFT_OUT = ("smp", "tree")
# Algorithms that need at least as many elements as the largest power of two up to the number of ranks.
_MANY_ELEMENTS = ("reduce_scatter_allgather",)
# MPICH reads sizes with atoi, so they must fit into an int.
_MOST_BYTES = (1 << 31) - 1
_ANY, _INTRA = "comm_size=any", "comm_type=intra"
# Deeper trees are refused, because they would exhaust Python's stack.
_MOST_LEVELS = 64
# The first bytes of a table inside the library.
_FIRST = b'{"collective='

Tree = dict[str, Any]
Table = dict[str, Tree]


@dataclass(frozen=True)
class MeasuredRules:
    """The rules of a collective for ``ranks`` ranks, and the ``parameters`` of each algorithm."""

    kind: Kind
    ranks: int
    rules: tuple[Rule, ...]
    parameters: Mapping[str, Mapping[str, int]]


def library_table(library: bytes, source: str) -> Table:
    """Return the table inside ``library``, the bytes of libmpi; raises DataError if there is none.

    The library also has such tables for its devices; the wanted table names algorithms of MPIR.
    """
    at = library.find(_FIRST)
    while at >= 0:
        end = library.find(b"\0", at)
        text = library[at:end].decode(errors="replace")
        if '"algorithm=MPIR_' in text:
            return read_table(text, source)
        at = library.find(_FIRST, end)
    raise DataError(source, ["found no selection table of MPICH"], hint="MPICH 4.0 and later have one.")


def read_table(text: str, source: str) -> Table:
    """Return the table of a file; raises DataError if the text is not one."""
    table: Table = parse_document(text, source, "JSON")
    flaw = _flaw(table, ())
    if flaw is None and not all(key.startswith("collective=") for key in table):
        flaw = "the first level must be collectives, such as collective=allreduce"
    if flaw is not None:
        raise DataError(source, [flaw], hint="Give a selection table of MPICH.")
    return table


def _flaw(tree: object, path: tuple[str, ...]) -> str | None:
    """Return the first empty branch (MPICH would fail there) or too deep one; None without such flaws."""
    where = " / ".join(path) or "the table"
    if len(path) > _MOST_LEVELS:
        return f"expected at most {_MOST_LEVELS} levels, found {where[:60]} …"
    if not isinstance(tree, dict) or not tree:
        return f"{where}: expected an object with conditions in it"
    if any(key.replace(" ", "").startswith(("algorithm=", "composition=")) for key in tree):
        return None
    for key, below in tree.items():
        flaw = _flaw(below, (*path, key))
        if flaw is not None:
            return flaw
    return None


def with_rules(table: Table, measured: MeasuredRules) -> Table:
    """Return the table with rules for communicators of ``measured.ranks`` ranks, unchanged for others."""
    key = f"collective={COLLECTIVES[measured.kind]}"
    if _INTRA not in table.get(key, {}):
        raise DataError("the table", [f"{key} / {_INTRA} is missing"])
    branches = _by_ranks(table[key][_INTRA])
    ranks, (_, otherwise) = measured.ranks, branches[-1]
    branch = next(tree for most, tree in branches if most is None or most >= ranks)
    below = [(most, tree) for most, tree in branches if most is not None and most < ranks]
    above = [(most, tree) for most, tree in branches if most is None or most > ranks]
    if ranks > 1 and (not below or below[-1][0] != ranks - 1):
        below.append((ranks - 1, branch))
    every = [*below, (ranks, _rules_tree(measured, _decide_ranks(otherwise, ranks))), *above]
    new = {_ANY if most is None else f"comm_size<={most}": tree for most, tree in every}
    return table | {key: table[key] | {_INTRA: new}}


def _by_ranks(intra: Tree) -> list[tuple[int | None, Tree]]:
    """Return (largest number of ranks, branch) for each branch of a tree that ``with_rules`` made.

    The number is None if it is unlimited. Any other tree is one branch with None.
    """
    bounds = [key.removeprefix("comm_size<=") for key in intra]
    if bounds[-1] != _ANY or not all(bound.isdecimal() for bound in bounds[:-1]):
        return [(None, intra)]
    most = [int(bound) for bound in bounds[:-1]]
    return list(zip([*most, None], intra.values(), strict=True)) if most == sorted(most) else [(None, intra)]


def _decide_ranks(tree: Tree, ranks: int) -> Tree:
    """Return the tree with each condition on the number of ranks replaced by its branch for ``ranks``.

    These conditions cannot stay, because below a condition on messages MPICH follows ``comm_size<8`` for 8
    ranks too.
    """
    if tree and all(_holds(key, ranks) is not None for key in tree):
        return _decide_ranks(next(below for key, below in tree.items() if _holds(key, ranks)), ranks)
    return {key: _decide_ranks(below, ranks) for key, below in tree.items()}


def _holds(key: str, ranks: int) -> bool | None:
    """Return whether a condition on the number of ranks holds; None for other conditions."""
    condition = key.replace(" ", "")
    if condition in (_ANY, "comm_size=pow2"):
        return condition == _ANY or ranks & (ranks - 1) == 0
    most = condition.removeprefix("comm_size<=")
    if most != condition and most.isdecimal():
        return ranks <= int(most)
    below = condition.removeprefix("comm_size<")
    return ranks < int(below) if below != condition and below.isdecimal() else None


def _rules_tree(measured: MeasuredRules, otherwise: Tree) -> Tree:
    tree: Tree = {}
    rules = measured.rules
    for at, rule in enumerate(rules):
        leaf = _leaf(measured, rule.algorithm, otherwise)
        last = at + 1 == len(rules) or rules[at + 1].from_bytes > _MOST_BYTES
        key = "=any" if last else f"<{rules[at + 1].from_bytes}"
        tree[f"{_SIZE[measured.kind]}{key}"] = leaf
        if last:
            break
    for guard in reversed(_GUARDS[measured.kind]):
        value = _HELD[guard]
        tree = {f"{guard}={value}": tree, f"{guard}={'no' if value == 'yes' else 'yes'}": otherwise}
    return tree


def _leaf(measured: MeasuredRules, algorithm: str, otherwise: Tree) -> Tree:
    """Return the branch of an algorithm; "" stands for the library's own choice, ``otherwise``."""
    if not algorithm:
        return otherwise
    word = COLLECTIVES[measured.kind].capitalize()
    parameters: Tree = {
        f"{name}={value}": {} for name, value in measured.parameters.get(algorithm, {}).items()
    }
    leaf: Tree = {f"algorithm=MPIR_{word}_intra_{algorithm}": parameters}
    if algorithm in _MANY_ELEMENTS:
        return {"count<pow2": otherwise, "count=any": leaf}
    return leaf


def parameters_of(kind: Kind, algorithm: str) -> dict[str, str]:
    """Return an algorithm's parameters in the table, each with the control variable that holds it."""
    word = COLLECTIVES[kind].upper()
    found = _PARAMETERS.get((kind, algorithm), {})
    return {name: f"MPIR_CVAR_{word}_{variable}" for name, variable in found.items()}


def environment(kinds: Sequence[Kind], path: str) -> dict[str, str]:
    """Return the environment variables that make MPICH load the table and use it for these collectives."""
    device = {f"MPIR_CVAR_{COLLECTIVES[kind].upper()}_DEVICE_COLLECTIVE": "0" for kind in kinds}
    return {
        "MPIR_CVAR_COLL_SELECTION_TUNING_JSON_FILE": path,
        "MPIR_CVAR_DEVICE_COLLECTIVES": "percoll",
        **device,
    }


def write_table(table: Table) -> str:
    """Return the text of a file."""
    return json.dumps(table, indent=1) + "\n"
