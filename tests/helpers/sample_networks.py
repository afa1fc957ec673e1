"""Networks that the tests of synth share: a table of named ones, and random ones for hypothesis."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from probes.base.columns import floats
from synth.network import Link, Network, build
from synth.networks.families import family

NAMED = {
    "pair": ("ring:2", [1e9]),
    "ring of 5": ("ring:5", [1e9]),
    "line of 4": ("mesh:4", [1e9]),
    "mesh": ("mesh:3x4", [50e9]),
    "uneven mesh": ("mesh:4x3", [50e9, 20e9]),
    "torus": ("torus:3x3x2", [10e9]),
    "hypercube": ("hypercube:8", [10e9]),
    "switch": ("switch:6", [25e9]),
    "fully connected": ("fully_connected:5", [25e9]),
    "dragonfly": ("dragonfly:4x3", [40e9, 20e9]),
    "hosts of two": ("switch_switch:2x4", [100e9, 25e9]),
    "fat tree": ("fat_tree:3x2/3", [25e9]),
    "ring, clique, switch": ("rfs:2x3x3", [200e9, 100e9, 50e9]),
}


def named(name: str, *, hold_alpha: bool = False) -> Network:
    spec, bandwidth = NAMED[name]
    return family(spec, [5e-7], bandwidth, hold_alpha=hold_alpha)


@st.composite
def networks(draw: st.DrawFn, most_ranks: int = 7) -> Network:
    """Strongly connected, heterogeneous, asymmetric, with parallel links and shared ports; some queue."""
    ranks = draw(st.integers(2, most_ranks))
    order = draw(st.permutations(range(ranks)))
    pairs = list(zip(order, order[1:] + order[:1], strict=True))
    extra = st.tuples(st.integers(0, ranks - 1), st.integers(0, ranks - 1)).filter(lambda p: p[0] != p[1])
    pairs += draw(st.lists(extra, max_size=2 * ranks))
    alpha = st.sampled_from([0.0, 1e-6, 5e-6])
    bandwidth = st.sampled_from([1e9, 2.5e9, 10e9, 40e9])
    links = [Link(src, dst, draw(alpha), 1 / draw(bandwidth), draw(_ports(src, dst))) for src, dst in pairs]
    hosts = [f"h{rank // 2}" for rank in range(ranks)]
    found = build("random", hosts, links, hold_alpha=draw(st.booleans()))
    rated = st.sampled_from([0.0, 1 / 100e9])
    own_s = draw(st.one_of(st.just([]), st.tuples(*[rated for _ in found.ports])))
    return replace(found, queues=draw(st.booleans()), port_beta_s_per_byte=floats(own_s))


def _ports(src: int, dst: int) -> st.SearchStrategy[tuple[str, ...]]:
    out, into = f"host {src // 2} out", f"rank {dst} in"
    return st.sampled_from([(), (), (out,), (out, into)])
