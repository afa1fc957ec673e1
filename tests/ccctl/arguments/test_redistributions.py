"""Files of tensors and layouts: what they mean, and which are refused."""

from __future__ import annotations

import json

import pytest
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st

from ccctl.arguments.redistributions import read_redistribution
from probes.base.errors import DataError
from synth.redistribution import MeshLayout, Moved, redistribution

FILE = """
[source]
ranks = "0-3"
mesh = [2, 2]
placements = ["replicate", "shard(1)"]

[target]
ranks = [5, 4]
placements = ["S(0)"]

[[tensor]]
shape = [6, 8]
dtype = "bf16"
count = 3

[[tensor]]
name = "bias"
shape = [7]
element_bytes = 1
source = { ranks = [0] }
target = { ranks = "4,5", placements = ["R"] }
"""


def test_a_file_says_what_moves(tmp_path):
    (tmp_path / "a.toml").write_text(FILE)
    pairs = MeshLayout((0, 1, 2, 3), (2, 2), (None, 1)), MeshLayout((5, 4), (2,), (0,))
    bias = MeshLayout((0,), (1,), (None,)), MeshLayout((4, 5), (2,), (None,))
    assert read_redistribution(str(tmp_path / "a.toml"), 6) == redistribution(
        6, [Moved((6, 8), 2, *pairs, count=3), Moved((7,), 1, *bias)]
    )


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('"0-3"', '"0-9"', r"tensor 0: source\.ranks: expected 4 different ranks"),
        ('"0-3"', "[0, 1, 2, 9]", r"there is no rank 9"),
        ('"0-3"', "3.5", r"source\.ranks: expected a list of whole numbers"),
        ("mesh = [2, 2]", "mesh = [2, -2]", r"source\.mesh: expected a list"),
        ('"shard(1)"', '"partial"', r"placements\[1\]: expected replicate or shard"),
        ('"shard(1)"', '"shard(2)"', "no axis 2 in a tensor of 2"),
        ("[6, 8]", "[6, 8.5]", r"tensor\[0\]\.shape: expected a list"),
        ("[6, 8]", f"[{1 << 59}, 8]", "expected at most"),
        ('"bf16"', '"bf61"', r"tensor\[0\]\.dtype: expected one of"),
        ("count = 3", "count = 0", r"tensor\[0\]\.count: expected 1 to"),
        ("element_bytes = 1", "element_bytes = 65", "element_bytes: expected 1 to 64"),
        ('name = "bias"', "nome = 1", r"tensor\[1\]\.nome: unknown"),
        ("[source]", "[sauce]", "sauce: unknown"),
        ("[[tensor]]", "[[tensors]]", "tensor: expected a list of tables"),
    ],
)
def test_a_mistake_is_named(tmp_path, old, new, reason):
    (tmp_path / "a.toml").write_text(FILE.replace(old, new))
    with pytest.raises(DataError, match=reason):
        read_redistribution(str(tmp_path / "a.toml"), 6)


WORDS = (
    "source",
    "target",
    "tensor",
    "ranks",
    "mesh",
    "placements",
    "shape",
    "count",
    "dtype",
    "element_bytes",
)
values = st.recursive(
    st.one_of(
        st.none(), st.integers(-2, 9), st.floats(), st.text(max_size=4), st.just("shard(0)"), st.just("0-3")
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(WORDS), inner)),
    max_leaves=12,
)


@settings(max_examples=drawn(200))
@given(document=st.dictionaries(st.sampled_from(WORDS), values))
def test_other_documents_are_refused(tmp_path_factory, document):
    path = tmp_path_factory.mktemp("files") / "a.json"
    path.write_text(json.dumps(document))
    with pytest.raises(DataError):
        read_redistribution(str(path), 6)
