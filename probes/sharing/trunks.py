"""Shared trunks: links between hosts, without a common host, that are slower together than alone.

Two such links that share a port are the seed: every other host is then tried as a sender beside one
of them, and as a receiver, so the trials grow with the number of hosts, not with that of pairs. What is
on one side of a trunk may be several racks: neighbours there are tried with one flow that stays and one
that leaves. A trunk that carries two flows at their full rate is no port, and is only told.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from itertools import pairwise

from probes.sampling.rounds import Pair, first_fit
from probes.sampling.samples import Place
from probes.sharing.model import Share
from probes.sharing.trials import Known, SpentError, Trial, Trials

__all__ = ["one_at_a_time", "trunk_shares"]

_MOST_SEEDS = 6
_MOST_TRUNKS = 8


def trunk_shares(known: Known, trials: Trials) -> tuple[list[Share], list[str]]:
    """The trunks that were found, and what is left to tell of contention without one."""
    found: list[Share] = []
    left = {**known.kept_waiting, **known.contended}
    with contextlib.suppress(SpentError):
        while left and len(found) < _MOST_TRUNKS:
            seed = _seed(left, known, trials)
            if seed is None:
                sure = {pair: gain for pair, gain in known.contended.items() if pair in left}
                return found, [_unexplained(sure)] if len(sure) > 1 else []
            first = _through(seed, known, trials)
            found += first
            found += _racks_within(first[0], found, known, trials)
            covered = {pair for share in found for pair in share.pairs} | set(seed)
            left = {pair: gain for pair, gain in left.items() if pair not in covered}
    return found, []


def one_at_a_time(
    pairs: Sequence[Pair], shares: Sequence[Share], places: Sequence[Place]
) -> list[list[Pair]]:
    """Waves of ``pairs`` in which none has a host, or one of ``shares``, in common with another."""

    def needed(pair: Pair) -> set[str]:
        hosts = {places[rank].host for rank in pair}
        return hosts | {share.name for share in shares if pair in share.pairs}

    return first_fit(pairs, needed)


def _through(seed: Trial, known: Known, trials: Trials) -> list[Share]:
    """The trunk that the links of ``seed`` cross, and the one back."""
    near, far = _sides(seed, known, trials)
    (a, b), (c, d) = seed
    found = [_trunk(near, far, known)]
    if {(b, a), (d, c)} <= known.beta.keys() and trials.shared([((b, a), (d, c))])[0]:
        found.append(_trunk(far, near, known))
    return found


def _racks_within(outer: Share, found: Sequence[Share], known: Known, trials: Trials) -> list[Share]:
    """The trunks of racks that are on the same side of ``outer``."""
    inner: list[Share] = []
    sides = [list(dict.fromkeys(known.host(pair[end]) for pair in outer.pairs)) for end in (0, 1)]
    for here, there in (sides, sides[::-1]):
        order = [host for host in known.ranks_of() if host in here]
        for at, (one, other) in enumerate(pairwise(order if len(order) > 2 else [])):
            stays = order[-1] if at < len(order) // 2 else order[0]
            seed = _between(((one, stays), (other, there[-1])), known)
            if seed is None or stays in (one, other) or any({*seed} <= {*share.pairs} for share in inner):
                continue
            if len(found) + len(inner) < _MOST_TRUNKS and all(trials.shared([seed])[0] for _ in range(2)):
                inner += _through(seed, known, trials)
    return inner


def _between(hosts: Sequence[tuple[str, str]], known: Known) -> Trial | None:
    """The measured links between two pairs of hosts; None where there are none."""
    links = [
        next((pair for pair in known.beta if (known.host(pair[0]), known.host(pair[1])) == ends), None)
        for ends in hosts
    ]
    return None if links[0] is None or links[1] is None else (links[0], links[1])


def _seed(contended: Mapping[Pair, float], known: Known, trials: Trials) -> Trial | None:
    """Two links that share a port although they have no host in common, one of them contended.

    Tried twice, as a disturbance may make any two look so.
    """
    order = sorted(contended, key=lambda pair: (-contended[pair], pair))
    # Of two that share a port one may take it all, and does not look contended itself.
    beside = [pair for pair in known.beta if pair not in contended]
    apart = [
        (one, other)
        for at, one in enumerate(order)
        for other in (*order[at + 1 :], *beside)
        if len({known.host(rank) for rank in (*one, *other)}) == 4
    ]
    # Those of one round were under way at the same time.
    apart.sort(key=lambda two: (_stride(two[0], known) != _stride(two[1], known), two[1] in beside))
    seeds = (trial for trial in apart[:_MOST_SEEDS] if all(trials.shared([trial])[0] for _ in range(2)))
    return next(seeds, None)


def _stride(pair: Pair, known: Known) -> int:
    return (pair[1] - pair[0]) % len(known.places)


def _sides(seed: Trial, known: Known, trials: Trials) -> tuple[list[str], list[str]]:
    """The hosts that send through the port of ``seed``, and those that receive through it."""
    (a, b), (c, d) = seed
    near, far = [known.host(a), known.host(c)], [known.host(b), known.host(d)]
    for host, ranks in known.ranks_of().items():
        if host in near or host in far:
            continue
        rank = ranks[0]
        if _crosses([((rank, d), (a, b)), ((rank, b), (c, d))], known, trials):
            near.append(host)
        elif _crosses([((c, rank), (a, b)), ((a, rank), (c, d))], known, trials):
            far.append(host)
    return near, far


def _crosses(options: Sequence[Trial], known: Known, trials: Trials) -> bool:
    """Whether the first link shares a port with the second, by the option of most bytes a second.

    Two slow flows may fit into a port side by side.
    """
    measured = sorted(
        (trial for trial in options if trial[0] in known.beta),
        key=lambda trial: -sum(1 / known.beta[pair] for pair in trial),
    )
    return bool(measured) and trials.shared(measured[:1])[0]


def _trunk(near: Sequence[str], far: Sequence[str], known: Known) -> Share:
    order = list(known.ranks_of())
    sides = (",".join(sorted(side, key=order.index)) for side in (near, far))
    pairs = [pair for pair in known.beta if known.host(pair[0]) in near and known.host(pair[1]) in far]
    return Share(f"trunk {' → '.join(sides)}", tuple(sorted(pairs)))


def _unexplained(contended: Mapping[Pair, float]) -> str:
    return (
        f"{len(contended)} links between hosts are up to {max(contended.values()):.1f} times faster alone "
        "than in company, but no two of them share a port: the network carries less than its hosts together"
    )
