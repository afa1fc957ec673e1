"""Models at random, as hypothesis draws them."""

from hypothesis import strategies as st

from probes.base.columns import floats, ints, longs
from synth.fusion.costs import RingCosts
from synth.fusion.model import Model

__all__ = ["costs", "models"]


@st.composite
def models(draw, most_backward=4.0):
    """Up to 12 layers of up to 3 tensors each; a backward pass takes at most so many forward passes."""
    count = draw(st.integers(1, 12))
    tensors = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count).filter(any))
    forward = draw(st.lists(st.floats(1e-4, 1e-1), min_size=count, max_size=count))
    share = draw(st.lists(st.floats(0.1, most_backward), min_size=count, max_size=count))
    layer = [at for at, many in enumerate(tensors) for _ in range(many)]
    size = draw(st.lists(st.integers(1, 1 << 26), min_size=len(layer), max_size=len(layer)))
    return Model(
        name="drawn",
        layers=tuple(f"layer{at}" for at in range(count)),
        forward_s=floats(forward),
        backward_s=floats([one * factor for one, factor in zip(forward, share, strict=True)]),
        tensors=tuple(f"tensor{at}" for at in range(len(layer))),
        tensor_layer=ints(layer),
        tensor_bytes=longs(size),
    )


def costs():
    """Rings of 2 to 64 ranks, from slow Ethernet to fast links."""
    return st.builds(RingCosts, st.integers(2, 64), st.floats(0, 1e-3), st.floats(1e-11, 1e-8))
