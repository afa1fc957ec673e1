"""Networks drawn by hypothesis: connected, links both ways, of unequal cost, some behind shared ports."""

from hypothesis import strategies as st

from synth.network import Link, Network, build


@st.composite
def random_networks(draw: st.DrawFn, most_ranks: int = 7) -> Network:
    """Up to ``most_ranks`` ranks: a random tree and some links more."""
    ranks = draw(st.integers(2, most_ranks))
    pairs = [(draw(st.integers(0, rank - 1)), rank) for rank in range(1, ranks)]
    more = st.tuples(st.integers(0, ranks - 1), st.integers(0, ranks - 1)).filter(
        lambda ends: ends[0] != ends[1]
    )
    pairs += draw(st.lists(more, max_size=2 * ranks))
    shared = draw(st.booleans())
    links = []
    for a, b in pairs:
        alpha_s = draw(st.sampled_from([0.0, 1e-6, 3e-6]))
        beta = draw(st.sampled_from([1.0, 1.0, 1.5, 2.3])) * 1e-9
        for src, dst in ((a, b), (b, a)):
            links.append(Link(src, dst, alpha_s, beta, (f"{src} out", f"{dst} in") if shared else ()))
    return build("random", [f"h{rank}" for rank in range(ranks)], links, hold_alpha=draw(st.booleans()))
