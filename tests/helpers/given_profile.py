"""Profiles of links whose costs are given."""

import numpy as np

from probes.base.columns import floats, ints
from probes.link_costs import Links, Profile, ProfiledRank

__all__ = ["profile_of_links"]


def profile_of_links(
    ranks, pairs, alpha_s, beta, *, alphas=(1,) * 3, betas=(1,) * 5, residual=0.0, samples=9, flags=(), **how
):
    """Return a profile with a link for each of ``pairs``; ``ranks`` are hosts, or ranks of a profile.

    Its columns are ``alpha_s`` times each of ``alphas``, and ``beta`` times each of ``betas``.
    """
    src, dst = np.array([*pairs], int).reshape(-1, 2).T
    one = np.ones(len(src))
    links = Links(
        ints(src),
        ints(dst),
        *(floats(one * alpha_s * times) for times in alphas),
        *(floats(one * beta * times) for times in betas),
        floats(one * residual),
        ints(one * samples),
        tuple(flags) or ("",) * len(src),
    )
    every = (ProfiledRank(at, one) if isinstance(one, str) else one for at, one in enumerate(ranks))
    usual = {"ports": (), "transport": "mpi", "library": "test", "seconds": 1.0, "rounds": 1}
    return Profile(tuple(every), links, **usual | how)
