"""Profiles of small networks with faults, for tests of localization."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from given_profile import profile_of_links

from probes.base import Floats, Mask
from probes.link_costs import HostMemory, Profile, ProfiledRank, SentSegments, SharedPort

__all__ = ["Faulty"]

RATE, ALPHA_S, NOISE = 1e9, 20e-6, 0.01


@dataclass
class Faulty:
    """Hosts with as many ranks each; ``rate`` and ``alpha_s`` of each link; tests make some of them worse.

    ``late`` is the 90th percentile of the time per byte over the best, and that of the median. ``jitter`` is
    the median latency over the best, and ``samples`` the number of samples of each link.
    """

    hosts: int = 6
    ranks: int = 1
    seed: int = 1
    rate: Floats = field(init=False)
    alpha_s: Floats = field(init=False)
    late: Floats = field(init=False)
    jitter: Floats = field(init=False)
    samples: int = 30
    memory: tuple[HostMemory, ...] = ()
    cores: int = 0
    segments: tuple[SentSegments, ...] = ()
    ports: tuple[SharedPort, ...] = ()
    flags: dict[tuple[int, int], str] = field(default_factory=dict)
    unmeasured: set[tuple[int, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        size = self.hosts * self.ranks
        self.rate = np.full((size, size), RATE)
        self.rate[self.host[:, None] == self.host[None, :]] = 4 * RATE
        self.alpha_s = np.full((size, size), ALPHA_S)
        self.late = np.full((size, size), 1.05)
        self.jitter = np.full((size, size), 1.1)

    @property
    def host(self) -> np.ndarray:
        return np.repeat(np.arange(self.hosts), self.ranks)

    def names(self) -> list[str]:
        return [f"gpu{at + 1}" for at in range(self.hosts)]

    def between(self, sources: list[int], targets: list[int]) -> Mask:
        """Return the links from hosts to other hosts."""
        src, dst = np.isin(self.host, sources), np.isin(self.host, targets)
        mask: Mask = src[:, None] & dst[None, :] & (self.host[:, None] != self.host[None, :])
        return mask

    def of(self, host: int) -> Mask:
        """Return the links from and to a host."""
        every = list(range(self.hosts))
        return self.between([host], every) | self.between(every, [host])

    def racks(self, *racks: list[int], extra_s: float = 15e-6) -> None:
        """Put hosts into racks, with ``extra_s`` more latency between racks."""
        rack = {host: at for at, hosts in enumerate(racks) for host in hosts}
        of = np.array([rack[int(host)] for host in self.host])
        self.alpha_s[of[:, None] != of[None, :]] += extra_s

    def profile(self, scale: float = 1.0) -> Profile:
        """Return what measuring gives, with every rate ``scale`` times as high."""
        rng = np.random.default_rng(self.seed)
        size = self.hosts * self.ranks
        pairs = [
            (src, dst)
            for src in range(size)
            for dst in range(size)
            if src != dst and (src, dst) not in self.unmeasured
        ]
        src, dst = (np.array(column) for column in zip(*pairs, strict=True))
        trips = self.alpha_s * np.exp(rng.normal(0, NOISE, self.alpha_s.shape))
        alpha = np.minimum(trips, trips.T)[src, dst]
        noise = np.exp(rng.normal(0, NOISE, self.rate.shape))
        jitter, late = self.jitter[src, dst], self.late[src, dst]
        names, many = self.names(), self.ranks
        return profile_of_links(
            [
                ProfiledRank(at, names[host], nic=f"mlx5_{at % many}" if many > 1 else "", cores=self.cores)
                for at, host in enumerate(self.host.tolist())
            ],
            pairs,
            alpha,
            (1 / (scale * self.rate * noise))[src, dst],
            alphas=(1, jitter, jitter * 1.2),
            betas=(1, late, late * 1.02, 0.985, 1.015),
            samples=self.samples,
            flags=[self.flags.get(pair, "") for pair in pairs],
            ports=self.ports,
            library="simulated",
            rounds=2,
            memory=self.memory,
            segments=self.segments,
        )
