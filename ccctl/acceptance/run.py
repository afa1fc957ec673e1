"""The stages of an acceptance: the hosts, then the links, then collectives on all ranks.

Each stage writes its artifact before the next begins. An interrupted acceptance goes on where it ended.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any, Literal

from ccctl import console
from ccctl.acceptance.folder import SAMPLES, AcceptanceFolder, refuse_damaged
from ccctl.acceptance.request import AcceptanceRequest
from ccctl.acceptance.whole import WholeStage
from ccctl.artifacts import created
from ccctl.errors import TimeoutExpired, UsageError
from ccctl.host_search import look_everywhere
from ccctl.launching import World, placed, run_ranks, without_hosts
from ccctl.rescue import rescuing
from ccctl.runs import ProfileRun
from probes.base import plural

if TYPE_CHECKING:
    from exec.acceptance import Certificate, Stage
    from probes.health import ClusterHealth, HostHealth
    from probes.link_costs import Profile
    from probes.profiling import Effort
    from probes.topology import Topology

__all__ = ["AcceptanceRun"]

_StageName = Literal["hosts", "links", "whole"]
_STAGES: tuple[_StageName, ...] = ("hosts", "links", "whole")
_HEALTH = "probes.health.task:health_task"
# With more ranks than this, only links between ranks 1, 2, 4, … apart are measured, as `profile --quick`
# does.
_THOROUGH_RANKS = 64
# Seconds for three rounds of about 2 s each, and for the start of ranks.
_AT_ONCE_S = 10.0
_LOST = ("host-missing", "host-failed")


@dataclass
class AcceptanceRun:
    """One acceptance in ``folder``. Put the plan and the evidence there before `measure`."""

    request: AcceptanceRequest
    folder: AcceptanceFolder
    skipped: dict[str, str] = field(default_factory=dict)
    started: str = field(default_factory=created)
    _stages: dict[str, Stage] = field(default_factory=dict)
    _profiling: ProfileRun | None = None
    _before: Profile | None = None
    _seconds_before: dict[str, float] = field(default_factory=dict)

    def resume(self) -> None:
        """Take over the finished stages of the acceptance in the folder.

        Raises UsageError if there is none, or if it is of other hosts or of another number of ranks. Raises
        DataError if a measurement is missing or was changed.
        """
        found = self.folder.certificate()
        if found is None:
            raise UsageError(
                f"--resume: there is no acceptance in {self.folder.path}", hint="Leave --resume out to begin."
            )
        refuse_damaged(self.folder, found)
        ranks, where = placed(self.request.world)
        hosts = {entry.host for entry in where}
        if found.ranks and ranks != found.ranks + self._lost_ranks(found.skipped):
            raise UsageError(
                f"--resume: that acceptance is of {plural(found.ranks, 'rank')}, and {ranks} are named now"
            )
        if hosts and found.skipped.keys() - hosts:
            raise UsageError("--resume: that acceptance is of other hosts")
        self.skipped, self.started = dict(found.skipped), found.started
        for stage in found.stages:
            if stage.done:
                self._stages[stage.name] = stage
            else:
                self._seconds_before[stage.name] = stage.seconds
        if "links" not in self._stages:
            self._before = self.folder.read("profile")

    def measure(self) -> None:
        """Run the stages that are not done, each written before the next begins."""
        steps = {"hosts": self._hosts, "links": self._links, "whole": self._whole}
        for name in _STAGES:
            if name in self._stages:
                console.note(f"{self._stages[name].label}: done before the interruption")
                continue
            began_s = time.monotonic() - self._seconds_before.get(name, 0.0)
            with rescuing(partial(self._rescue, name, began_s)):
                left_out = steps[name]()
                self._end(name, began_s, left_out)

    def stages(self) -> tuple[Stage, ...]:
        """Return the stages so far, in their order."""
        return tuple(self._stages[name] for name in _STAGES if name in self._stages)

    def _end(
        self, name: _StageName, began_s: float, left_out: Sequence[str] = (), *, done: bool = True
    ) -> None:
        from exec.acceptance import Stage

        seconds = round(time.monotonic() - began_s, 3)
        self._stages[name] = Stage(name, seconds, done, tuple(left_out))
        self.folder.write_certificate(self._unjudged())

    def _rescue(self, name: _StageName, began_s: float, why: str) -> str:
        """Write what an interrupted stage has measured; return a message on how to go on."""
        if name in self._stages:
            # The stage has ended; perhaps its certificate is not written yet.
            self.folder.write_certificate(self._unjudged())
        else:
            if name == "links" and self._profiling is not None:
                measured = self._profiling.partial(why)
                if measured is not None:
                    self._write(self._with_earlier(measured))
            self._end(name, began_s, (f"interrupted: {why}",), done=False)
        return f"What was measured is in {self.folder.path}; the same command with --resume goes on."

    def _unjudged(self) -> Certificate:
        """Return the certificate of an acceptance that has not ended."""
        from exec.acceptance import Certificate

        profile = self.folder.read("profile")
        tested = tuple(dict.fromkeys(rank.host for rank in profile.ranks)) if profile else ()
        return Certificate(
            "undecided",
            "the acceptance has not ended",
            len(profile.ranks) if profile else 0,
            tested,
            self.skipped,
            stages=self.stages(),
            started=self.started,
        )

    def _lost_ranks(self, skipped: dict[str, str]) -> int:
        return sum(entry.slots for entry in placed(self.request.world)[1] if entry.host in skipped)

    def _world(self) -> World:
        return without_hosts(self.request.world, self.skipped) if self.skipped else self.request.world

    def _hosts(self) -> Sequence[str]:
        """Detect the hosts and read their health; hosts that do not answer are skipped from then on."""
        from probes.detection import DetectRequest
        from probes.health import HealthRequest, cluster_health

        count = len(placed(self.request.world)[1]) or 1
        console.note(f"hosts: looking at {plural(count, 'host')}")
        topology = look_everywhere(self.request.world, DetectRequest(), self.request.seconds_left())
        self.skipped = {finding.where: finding.text for finding in topology.findings if finding.what in _LOST}
        self.folder.write("topology", topology)
        groups = run_ranks(
            _HEALTH, HealthRequest(), self._world(), label="health", timeout_s=self.request.seconds_left()
        )
        health = cluster_health(groups, self.skipped.items())
        self.skipped = dict(health.missing)
        self.folder.write("health", _with_topology(health, topology))
        return ()

    def _links(self) -> Sequence[str]:
        """Measure the links that are not measured yet."""
        from probes.profiling import Effort

        world = self._world()
        ranks = placed(world)[0]
        effort = Effort(
            quick=ranks > _THOROUGH_RANKS,
            budget_s=self.request.links_budget_s(),
            device=self.request.device,  # type: ignore[arg-type] # the command line has checked it
        )
        if self._before is not None:
            effort = _rest(effort, self._before)
        console.note(_links_note(ranks, effort.fast_links_s(ranks), effort.budget_s))
        if effort.turns is not None and not len(effort.turns.src):
            assert self._before is not None
            profile = self._before
        else:
            self._profiling = ProfileRun(effort, world, self.request.seconds_left(), label="links")
            profile = self._with_earlier(self._profiling.result())
            self.skipped |= self._profiling.missing
            self._write(profile)
        left_out, profile = self._at_once(profile)
        self.folder.write("profile", profile)
        kinds = dict(zip(profile.findings, profile.finding_kinds, strict=True))
        return [*(text for text, kind in kinds.items() if kind == "incomplete"), *left_out]

    def _at_once(self, profile: Profile) -> tuple[list[str], Profile]:
        """Return (what was left out, the profile with rounds in which all hosts send at once)."""
        from probes.localization import FabricPlan
        from probes.profiling import ConcurrentRequest, flows_of

        plan, hosts = self.request.terms.plan or FabricPlan(), tuple(rank.host for rank in profile.ranks)
        rack_of = {host: plan.rack_of(host) for host in dict.fromkeys(hosts)}
        if not flows_of(hosts, rack_of):
            return [], profile
        left_s, what = (
            self.request.left_s(self.request.budget_s),
            "all hosts sending at once, and across the bisection",
        )
        if left_s is not None and left_s <= _AT_ONCE_S:
            return [f"{what}: no time was left of the budget"], profile
        console.note(f"links: {what}")
        limit_s = self.request.seconds_left()
        try:
            found = run_ranks(
                "probes.profiling.concurrent:concurrent_task",
                ConcurrentRequest(hosts, rack_of, median(profile.links.beta_s_per_byte.tolist())),
                replace(self._world(), ranks=len(hosts)),
                label="links",
                timeout_s=left_s if limit_s is None else min(limit_s, left_s or limit_s),
            )
        except TimeoutExpired:
            self.request.seconds_left()
            return [f"{what}: it took longer than what was left of the budget"], profile
        return [], replace(profile, concurrent=found)

    def _write(self, profile: Profile) -> None:
        """Write the profile, and the raw samples from which it was fitted."""
        from probes.profiling import samples_joined

        assert self._profiling is not None
        samples = self._profiling.samples()
        if self._before is not None:
            samples = samples_joined(self.folder.read(SAMPLES), samples)
        self.folder.write(SAMPLES, samples)
        self.folder.write("profile", profile)

    def _with_earlier(self, profile: Profile) -> Profile:
        """Return ``profile`` with the links that were measured before an interruption."""
        from probes.profiling import joined

        if self._before is None:
            return profile
        found = joined(profile, self._before)
        return replace(found, seconds=profile.seconds + self._before.seconds)

    def _whole(self) -> Sequence[str]:
        """Run collectives on all ranks; return a line for each that failed or had no time left."""
        profile: Profile = self.folder.read("profile")
        return WholeStage(self.request, self.folder, self._world(), profile).run()


def _rest(effort: Effort, before: Profile) -> Effort:
    """Return ``effort`` with only the links that ``before`` lacks."""
    from probes.base import ints
    from probes.profiling import Turns
    from probes.sampling import doubling_strides, rings, strides

    ranks = len(before.ranks)
    done = set(zip(before.links.src.tolist(), before.links.dst.tolist(), strict=True))
    wanted = rings(ranks, doubling_strides(ranks) if effort.quick else strides(ranks))
    left = [(at, *pair) for at, ring in enumerate(wanted) for pair in ring if pair not in done]
    columns: Any = zip(*left, strict=True) if left else ((), (), ())
    number, src, dst = (ints(list(column)) for column in columns)
    return replace(effort, turns=Turns(tuple(rank.host for rank in before.ranks), src, dst, number))


def _with_topology(health: ClusterHealth, topology: Topology) -> ClusterHealth:
    """Add the PCI tree, missing peer-to-peer paths and environment of each host to the health.

    Alike hosts that lack different paths become separate groups.
    """
    from probes.health import environment, missing_peers, with_pci_tree

    named = {host.name: host for host in topology.hosts}
    hosts: list[HostHealth] = []
    same: dict[str, tuple[str, ...]] = {}
    for one in health.hosts:
        groups: dict[tuple[str, ...], list[str]] = {}
        for name in (one.host, *health.same.get(one.host, ())):
            groups.setdefault(missing_peers(named[name]) if name in named else (), []).append(name)
        for missing, (first, *others) in groups.items():
            found = replace(one, host=first, peer_to_peer_missing=missing)
            if (host := named.get(first)) is not None:
                found = replace(found, gpus=with_pci_tree(one.gpus, host))
                found = replace(found, environment=environment(host, found, found.interface))
            hosts.append(found)
            same |= {first: tuple(others)} if others else {}
    return replace(health, hosts=tuple(hosts), same=same)


def _links_note(ranks: int, fast_s: float, budget_s: float | None) -> str:
    """Return what is measured, and how long that takes beside starting the ranks."""
    what = f"links: measuring the links between {plural(ranks, 'rank')}"
    if budget_s is not None and budget_s <= fast_s:
        return f"{what} that fit into {_minutes(budget_s)}"
    most = "" if budget_s is None else f", up to {_minutes(budget_s)}"
    return f"{what}: {_minutes(fast_s)}, longer for slow links or shared cores{most}"


def _minutes(seconds: float) -> str:
    """Return a time that need not be exact."""
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{max(1.0, seconds):.0f} s"
