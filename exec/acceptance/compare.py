"""The changes from one acceptance of a cluster to the next: culprits, hosts, collectives, the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from exec.acceptance.certificate import Certificate, Culprit, Verdict, WholeRow

__all__ = ["Changes", "WholeChange", "changes"]

# Medians of the same collective differ by up to this share from run to run on a quiet cluster, so a smaller
# change is not reported. `ccctl bench` allows twice as much (10 %), because it compares single runs of any
# machine.
TOLERANCE = 0.05


@dataclass(frozen=True)
class WholeChange:
    """One collective that became slower or faster."""

    before: WholeRow
    now: WholeRow

    @property
    def ratio(self) -> float:
        """The time now as a multiple of the time before: above 1 it became slower."""
        return self.now.time_s / self.before.time_s


@dataclass(frozen=True)
class Changes:
    """The changes between two certificates of a cluster.

    Two culprits are the same if they have the same kind and the same part. ``new`` and ``standing`` are
    culprits of the later certificate. ``gone`` and ``untested`` are culprits of the earlier certificate only;
    for those in ``gone``, all hosts of the culprit were tested again. ``stages_missing`` are the stages that
    were done before but not now. A culprit may be in ``gone`` only because a missing stage did not look for
    it. If times of either are ``unreliable``, because ranks waited for cores, none are compared. Sizes of
    collectives that only one of the two has are ``sizes_now_only`` and ``sizes_before_only``.
    """

    verdict_before: Verdict
    verdict: Verdict
    started_before: str = ""
    new: tuple[Culprit, ...] = ()
    gone: tuple[Culprit, ...] = ()
    untested: tuple[Culprit, ...] = ()
    standing: tuple[Culprit, ...] = ()
    hosts_new: tuple[str, ...] = ()
    hosts_gone: tuple[str, ...] = ()
    stages_missing: tuple[str, ...] = ()
    slower: tuple[WholeChange, ...] = ()
    faster: tuple[WholeChange, ...] = ()
    unreliable: bool = False
    sizes_now_only: tuple[int, ...] = ()
    sizes_before_only: tuple[int, ...] = ()
    ranks_before: int = 0
    ranks: int = 0

    @property
    def none(self) -> bool:
        """Whether nothing changed; culprits that are still there are no change."""
        changed = (self.new, self.gone, self.untested, self.hosts_new, self.hosts_gone, self.stages_missing)
        same = (self.verdict, self.ranks) == (self.verdict_before, self.ranks_before)
        return same and not any((*changed, self.slower, self.faster))


def changes(before: Certificate, now: Certificate) -> Changes:
    """Return the changes from ``before`` to ``now``; times count if they changed by over 5 %."""
    known, found = set(map(_key, before.culprits)), set(map(_key, now.culprits))
    left = [one for one in before.culprits if _key(one) not in found]
    tested_before, tested = set(before.tested), set(now.tested)
    done = {stage.name for stage in now.stages if stage.done}
    unreliable = any(one.kind == "crowded" for one in (*before.culprits, *now.culprits))
    rows = [] if unreliable else _common_rows(before.whole, now.whole)
    sizes_before, sizes_now = ({row.size_bytes for row in one.whole} for one in (before, now))
    return Changes(
        verdict_before=before.verdict,
        verdict=now.verdict,
        started_before=before.started,
        new=tuple(one for one in now.culprits if _key(one) not in known),
        gone=tuple(one for one in left if tested.issuperset(one.hosts)),
        untested=tuple(one for one in left if not tested.issuperset(one.hosts)),
        standing=tuple(one for one in now.culprits if _key(one) in known),
        hosts_new=tuple(host for host in now.tested if host not in tested_before),
        hosts_gone=tuple(host for host in before.tested if host not in tested),
        stages_missing=tuple(one.name for one in before.stages if one.done and one.name not in done),
        slower=tuple(row for row in rows if row.ratio > 1 + TOLERANCE),
        faster=tuple(row for row in rows if row.ratio < 1 / (1 + TOLERANCE)),
        unreliable=unreliable and bool(_common_rows(before.whole, now.whole)),
        sizes_now_only=tuple(sorted(sizes_now - sizes_before)) if sizes_before else (),
        sizes_before_only=tuple(sorted(sizes_before - sizes_now)) if sizes_now else (),
        ranks_before=before.ranks,
        ranks=now.ranks,
    )


def _key(culprit: Culprit) -> tuple[str, str]:
    return culprit.kind, culprit.part


def _common_rows(before: Sequence[WholeRow], now: Sequence[WholeRow]) -> list[WholeChange]:
    """Return the rows that both have, in the order of ``now``; a row without a time is left out."""
    old = {(row.collective, row.size_bytes, row.library): row for row in before if row.time_s > 0}
    pairs = ((old.get((row.collective, row.size_bytes, row.library)), row) for row in now if row.time_s > 0)
    return [WholeChange(first, row) for first, row in pairs if first is not None]
