"""A fixed order of sums gives the same bits on any network, at any size, in any chunks, around failures."""

from __future__ import annotations

import functools
import hashlib

import pytest
from fixed_order import drawn_inputs, fixed_sum, reproducible_program

from ccctl.arguments import load_network
from exec.program.interpreter import interpret
from synth.networks.families import family

FEW = ("torus:2x4", "ring:8", "dgx-a100:1")
# `make test-long` tries these as well.
MORE = ("switch_switch:4x2", "switch:8", "hypercube:8", "fat_tree:4x2/2")
MOST = 3000


def network_of(spec):
    if spec.startswith("dgx"):
        return load_network(spec, None, None)[0]
    return family(spec, [1e-6], [50e9] * (2 if spec.startswith("switch_switch") else 1))


def digest(output, elements):
    """The digest of the first elements, which are the same at every size."""
    return hashlib.sha256(output[:elements].tobytes()).hexdigest()


@functools.cache
def programs(specs, chunks, broken):
    """Programs of eight ranks: networks, numbers of chunks, and what is left without a link."""
    found = [reproducible_program(network_of(spec), size_bytes=1 << 13) for spec in specs]
    found += [
        reproducible_program(network_of("switch:8"), None, chunk_bytes=512, chunks=count) for count in chunks
    ]
    found += [
        reproducible_program(network_of(spec), without="link:0-1", size_bytes=1 << 13) for spec in broken
    ]
    return found


@pytest.mark.parametrize(
    "cases",
    [(FEW, (1, 24), FEW[1:2]), pytest.param((MORE, (8,), (FEW[0], MORE[1])), marks=pytest.mark.long)],
    ids=["few", "more"],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_all_give_the_digest_of_the_definition(dtype, cases):
    inputs = drawn_inputs(8, MOST, dtype)
    right = fixed_sum(inputs)
    for program in programs(*cases):
        for elements in (1, 37, MOST):
            outputs = interpret(program, [one[:elements] for one in inputs])
            digests = {digest(output, elements) for output in outputs}
            assert digests == {digest(right, elements)}, (program.name, elements)


@pytest.mark.parametrize(
    "ranks", [2, 3, 5, 6, 7, *(pytest.param(many, marks=pytest.mark.long) for many in (11, 12, 16))]
)
def test_any_number_of_ranks_has_its_order(ranks):
    inputs = drawn_inputs(ranks, 200, "float32")
    for spec in (f"ring:{ranks}", f"switch:{ranks}"):
        outputs = interpret(reproducible_program(network_of(spec), size_bytes=1 << 12), inputs)
        assert {output.tobytes() for output in outputs} == {fixed_sum(inputs).tobytes()}


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_ranks_that_add_up_their_share_of_the_leaves_give_the_same_bits(ranks):
    """Eight leaves on 1, 2, 4 or 8 ranks: each rank's share is a subtree of the same tree."""
    leaves = drawn_inputs(8, 200, "float32")
    share = 8 // ranks
    inputs = [fixed_sum(leaves[first : first + share]) for first in range(0, 8, share)]
    assert fixed_sum(inputs).tobytes() == fixed_sum(leaves).tobytes()
    if ranks > 1:
        outputs = interpret(reproducible_program(network_of(f"ring:{ranks}"), size_bytes=1 << 12), inputs)
        assert {output.tobytes() for output in outputs} == {fixed_sum(leaves).tobytes()}
