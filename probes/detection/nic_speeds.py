"""Comparison of NICs' declared speeds with measured rates: finds wrong speeds and slow paths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from probes.detection.host_edits import Edit
from probes.paths import MeasuredPair, host_named, nearest_nic
from probes.topology import Finding, Gpu, Nic, Topology

__all__ = ["NicSpeeds"]

# Least and greatest ratio of measured to declared speed for a correctly declared NIC.
_LEAST, _MOST = 0.7, 1.25
_STANDARD_MBIT = (1_000, 10_000, 25_000, 40_000, 50_000, 100_000, 200_000, 400_000, 800_000)

# A NIC: (host name, NIC name).
_Key = tuple[str, str]


class NicSpeeds:
    """The measured pairs with NICs in the topology, and each NIC's declared speed and best rate."""

    def __init__(self, topology: Topology, pairs: Sequence[MeasuredPair]) -> None:
        self._topology = topology
        self._pairs: list[tuple[MeasuredPair, _Key, _Key]] = []
        self._mbit: dict[_Key, int] = {}
        self._best_gbs: dict[_Key, float] = {}
        for pair in pairs:
            src = _nic_of(topology, pair.src.host, pair.src.nic, pair.src_gpu)
            dst = _nic_of(topology, pair.dst.host, pair.dst.nic, pair.dst_gpu)
            if src is None or dst is None:
                continue
            keys = [(host, nic.name) for host, nic in (src, dst)]
            self._pairs.append((pair, keys[0], keys[1]))
            for key, (_, nic) in zip(keys, (src, dst), strict=True):
                self._mbit[key] = nic.speed_mbit or 0
                self._best_gbs[key] = max(self._best_gbs.get(key, 0.0), pair.gbs)

    @property
    def compared(self) -> int:
        """The number of compared pairs."""
        return len(self._pairs)

    def corrected(self) -> tuple[Topology, list[Edit], list[Finding]]:
        """Return (the topology with measured speeds, its edits, pairs that still contradict it)."""
        hosts, mbit, edits = {host.name: host for host in self._topology.hosts}, dict(self._mbit), []
        for key in filter(self._is_wrong, self._best_gbs):
            best_gbs, host = self._best_gbs[key], hosts[key[0]]
            speed = _standard(best_gbs)
            nics = tuple(replace(nic, speed_mbit=speed) if nic.name == key[1] else nic for nic in host.nics)
            text = (
                f"declared {mbit[key] / 1000:g} Gbit/s, measured at most {8 * best_gbs:.3g} Gbit/s in any "
                f"pair: {speed / 1000:g} Gbit/s"
            )
            after = hosts[key[0]] = replace(host, nics=nics)
            edits.append(Edit("nic", *key, text, host, after))
            mbit[key] = speed
        topology = replace(self._topology, hosts=tuple(hosts[host.name] for host in self._topology.hosts))
        return topology, edits, self._unexplained(mbit)

    def _is_wrong(self, key: _Key) -> bool:
        """Return whether the best rate of a NIC in all its pairs contradicts its declared speed."""
        mbit, best_gbs = self._mbit[key], self._best_gbs[key]
        if not mbit:
            return False
        if best_gbs > _MOST * mbit / 8000:
            return True
        others = {dst if src == key else src for _, src, dst in self._pairs if key in (src, dst)}
        expected = max(min(mbit, self._mbit[other] or mbit) for other in others) / 8000
        if best_gbs >= _LEAST * expected:
            return False
        # This NIC is the slow one if a peer is faster in another pair, or if no NIC is much faster.
        return any(self._best_gbs[other] > best_gbs / 0.9 for other in others) or best_gbs >= 0.9 * max(
            self._best_gbs.values()
        )

    def _unexplained(self, mbit: dict[_Key, int]) -> list[Finding]:
        """Return the pairs whose rate differs from that of the slower NIC."""
        found = []
        for pair, src, dst in self._pairs:
            expected = min(mbit[src], mbit[dst]) / 8000
            if expected and (pair.high_gbs < _LEAST * expected or pair.low_gbs > _MOST * expected):
                text = (
                    f"to {dst[0]}: {8 * pair.gbs:.3g} Gbit/s measured, {8 * expected:.3g} declared; other "
                    "pairs of both are faster, so the cause lies between them"
                )
                found.append(Finding("declared-pair", "/".join(src), text))
        return found


def _nic_of(topology: Topology, name: str, nic: str, gpu: Gpu | None) -> tuple[str, Nic] | None:
    """Return (host, NIC) of an end: the rank's own NIC, else the nearest to its GPU, else the only NIC."""
    host = host_named(topology, name)
    if host is None or len(topology.hosts) == 1:
        return None
    found = next((one for one in host.nics if nic and nic in (one.name, one.rdma_device)), None)
    if found is None and gpu is not None:
        found = nearest_nic(host, gpu)
    if found is None and len(host.physical_nics) == 1:
        found = host.physical_nics[0]
    return None if found is None else (host.name, found)


def _standard(gbs: float) -> int:
    """Return the standard speed of which ``gbs`` is 75 to 102 %, in Mbit/s; ``gbs`` itself if none."""
    mbit = gbs * 8000
    fitting = (speed for speed in _STANDARD_MBIT if 0.75 * speed <= mbit <= 1.02 * speed)
    return next(fitting, max(1, round(mbit)))
