"""The verdict on a cluster, from its measurements alone, so that anybody can compute it again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from exec.acceptance.certificate import Certificate, Culprit, FaultCost, Spares, Stage, Verdict, WholeRow
from exec.acceptance.concurrent import crowded_flows
from exec.acceptance.cost import costs, spares
from exec.acceptance.network_bought import repaired, sound_network
from exec.benchmark import Measurement, Report, Row, judged
from exec.benchmark.foreign import Evidence
from exec.program import Corruption
from probes.base import CcctlError, format_size, plural, some
from probes.health import (
    ClusterHealth,
    HostHealth,
    HostProblem,
    differences,
    gpu_problems,
    host_problems,
    peer_problems,
)
from probes.link_costs import Profile
from probes.localization import Bought, FabricPlan, Fault, describe, locate, remedy_of
from probes.topology import Topology
from synth.collective import Kind
from synth.network import Network
from synth.networks import from_profile
from synth.schedules import Selection

__all__ = ["Measured", "Terms", "judge"]

# Kinds of a host's own problems that make its links slow. One culprit then stands for the problem and for the
# slow links.
_SLOWS_LINKS = {
    "mtu",
    "rdma_mtu",
    "nic_rate",
    "nic_pcie",
    "nic_errors",
    "nic_down",
    "pcie_width",
    "pcie_speed",
}
_SLOWS_HOST = {"governor", "throttled", "quota"}
# The evidence of a culprit that may have been a disturbance; with such a culprit the verdict is "undecided".
_UNCONFIRMED = "not confirmed: it was measured too seldom to tell it from a disturbance"
# A collective may take a path that is faster than messages between its ranks (memory that they share). Only a
# time below the bound by more than this factor shows that a link was measured too slow.
_IMPOSSIBLE = 2.0
# The most ranks for which bounds are computed; for more, that takes longer than the measurement itself.
_MOST_BOUND_RANKS = 64
# The most hosts that the evidence of a culprit names, so that it stays one line.
_MOST_NAMED = 6


@dataclass(frozen=True)
class Measured:
    """All that a verdict rests on: five artifacts, and the evidence of other tools.

    ``selection`` has the schedules of the collective by which faults are priced.
    """

    topology: Topology | None = None
    health: ClusterHealth | None = None
    profile: Profile | None = None
    report: Report | None = None
    evidence: tuple[Evidence, ...] = ()
    selection: Selection | None = None


@dataclass(frozen=True)
class Terms:
    """The terms of an acceptance: what was bought, the wiring plan, and how faults are priced.

    ``spares`` is the number of hosts that may be left out. The cost of a fault is measured by the time of
    ``collective`` with ``size_bytes`` bytes; at 1 GiB latency hardly counts.
    """

    bought: Bought | None = None
    plan: FabricPlan | None = None
    spares: int = 0
    collective: Kind = "all_reduce"
    size_bytes: int = 1 << 30


@dataclass(frozen=True)
class _Links:
    """The faults of the links, and three networks: as measured, with sound parts only, and as bought."""

    faults: tuple[Fault, ...] = ()
    network: Network | None = None
    sound: Network | None = None
    offered: Network | None = None
    profile: Profile | None = None


def judge(
    measured: Measured,
    terms: Terms,
    stages: Sequence[Stage] = (),
    skipped: Mapping[str, str] | None = None,
) -> Certificate:
    """Return the certificate of a cluster, without the digests of files and the seal.

    ``skipped`` maps each host that was not tested to the reason. The verdict is "undecided" if no fault was
    found, but a stage was not done, links or collectives were not measured, or a fault of links is not
    confirmed.
    """
    skipped = dict(skipped or {})
    links = _links(measured.profile, terms)
    found = [
        *(_dead(host, reason) for host, reason in skipped.items()),
        *_joined(
            _of_hosts(measured, with_gpus=_has_gpus(terms)),
            _of_faults(links, terms, measured.selection, measured.report),
        ),
        *crowded_flows(measured.profile, terms.bought, terms.plan, links.faults),
        *_of_report(measured.report),
        *_of_integrity(measured),
        *map(_of_evidence, measured.evidence),
    ]
    culprits = tuple(sorted(found, key=_rank))
    verdict, reason = _verdict(culprits, measured, stages)
    return Certificate(
        verdict=verdict,
        reason=reason,
        ranks=len(measured.profile.ranks) if measured.profile else 0,
        tested=_tested(measured),
        skipped=skipped,
        spec=terms.bought.name if terms.bought else "",
        collective=terms.collective,
        size_bytes=terms.size_bytes,
        spares_asked=terms.spares,
        culprits=culprits,
        whole=tuple(_whole(measured.report, links)),
        integrity=measured.report.integrity if measured.report else None,
        spares=_spares(links, terms),
        stages=tuple(stages),
        unread=_unread(measured.health),
        versions=_versions(measured),
        serials=_serials(measured),
    )


def _links(profile: Profile | None, terms: Terms) -> _Links:
    if profile is None:
        return _Links()
    faults = tuple(locate(profile, terms.bought, terms.plan))
    network = from_profile(profile, "the measured network")
    offered = sound_network(profile, terms.bought, terms.plan) if terms.bought else None
    # A repaired part is as fast as its sound peers are, which may be a little less than what was bought. If
    # all links are slow, only what was bought says how fast they should be.
    whole = any(fault.kind == "fabric" for fault in faults)
    sound = offered if whole and offered is not None else sound_network(profile, plan=terms.plan)
    return _Links(faults, network, sound, offered, profile)


def _has_gpus(terms: Terms) -> bool:
    return terms.bought is not None and terms.bought.inside_bytes_per_s is not None


def _tested(measured: Measured) -> tuple[str, ...]:
    if measured.profile is not None:
        return tuple(dict.fromkeys(one.host for one in measured.profile.ranks))
    return tuple(one.host for one in measured.health.every()) if measured.health else ()


def _dead(host: str, reason: str) -> Culprit:
    return Culprit(
        "dead",
        host,
        (host,),
        "fault",
        f"host {host} was not tested: {reason}",
        remedy=f"make ssh {host} work without a password, and install ccctl there at the same place",
    )


def _without_gpus(host: HostHealth) -> HostProblem:
    why = host.unread.get("GPUs", "the driver lists none")
    return HostProblem(
        host.host,
        "GPUs",
        "gpus_missing",
        "fault",
        f"no GPU answers, and the machine that was bought has some: {why}",
        "nvidia-smi -L or rocm-smi on the host; install or load the driver",
    )


def _of_hosts(measured: Measured, *, with_gpus: bool) -> list[Culprit]:
    """Return a culprit for each problem of hosts; the same problem of several hosts is one culprit."""
    if measured.health is None:
        return []
    devices = {one.name: one for one in measured.topology.hosts} if measured.topology else {}
    problems: list[HostProblem] = []
    every = list(measured.health.every())
    for host in every:
        if with_gpus and not host.gpus and not (host.host in devices and devices[host.host].gpus):
            problems.append(_without_gpus(host))
        problems += [*host_problems(host), *gpu_problems(host)]
        if host.host in devices:
            problems += peer_problems(devices[host.host], host)
    # A part with a problem of its own, such as a port that is down, also differs from the same part of other
    # hosts. The difference says nothing new and is left out.
    parts = {(one.host, word) for one in problems for word in one.part.split()}
    problems += [one for one in differences(every) if (one.host, one.part.split()[-1]) not in parts]
    alike: dict[tuple[str, ...], list[HostProblem]] = {}
    for one in problems:
        alike.setdefault((one.kind, one.part, one.severity, one.text, one.remedy), []).append(one)
    return [_of_problems(same) for same in alike.values()]


def _of_problems(same: Sequence[HostProblem]) -> Culprit:
    first, hosts = same[0], tuple(dict.fromkeys(one.host for one in same))
    owner = hosts[0] if len(hosts) == 1 else f"{len(hosts)} hosts"
    evidence = () if len(hosts) == 1 else (f"on {some(list(hosts), _MOST_NAMED)}",)
    part = f"{owner} {first.part}" if first.part else owner
    return Culprit(first.kind, part, hosts, first.severity, first.text, evidence, "certain", first.remedy)


def _of_faults(
    links: _Links, terms: Terms, selection: Selection | None, report: Report | None
) -> list[tuple[Fault, Culprit]]:
    """Return each fault of the links with its culprit and its cost."""
    if links.profile is None or links.network is None:
        return []
    assert links.sound is not None
    refuted = _refuted(links, report)
    asked = links.network, links.sound, links.faults, terms.collective, terms.size_bytes
    priced = costs(*asked, selection=selection, measured_s=_measured_s(report, terms, "ccctl"))
    by_library: Sequence[FaultCost | None] = [None] * len(priced)
    library_s = _measured_s(report, terms, "mpi")
    if library_s is not None:
        by_library = costs(*asked, measured_s=library_s, library=links.profile.library)
    return [
        (fault, _disturbance(fault, _hosts_of(fault, links.profile), refuted[at]))
        if at in refuted
        else (
            fault,
            Culprit(
                fault.kind,
                " and ".join(fault.parts) or "the fabric",
                _hosts_of(fault, links.profile),
                "fault" if fault.confirmed else "remark",
                describe(fault, bought=terms.bought is not None),
                fault.evidence if fault.confirmed else (*fault.evidence, _UNCONFIRMED),
                fault.sure if fault.confirmed else "possible",
                remedy_of(fault),
                cost,
                library_cost,
            ),
        )
        for at, (fault, cost, library_cost) in enumerate(zip(links.faults, priced, by_library, strict=True))
    ]


def _disturbance(fault: Fault, hosts: tuple[str, ...], why: str) -> Culprit:
    """Return the culprit for a slow part that ``why`` shows to have been measured during a disturbance."""
    part = " and ".join(fault.parts) or "the fabric"
    return Culprit(
        fault.kind,
        part,
        hosts,
        "remark",
        f"{part}: {100 * fault.level:.0f} % of the normal rate was measured, which cannot be: {why}; "
        "something disturbed the measurement",
        (*fault.evidence, _UNCONFIRMED),
        "possible",
        "measure again while nothing else runs there",
    )


def _refuted(links: _Links, report: Report | None) -> dict[int, str]:
    """Return {number of a fault: the run that shows that the link was faster than measured}."""
    if report is None or links.network is None or links.sound is None or not links.faults:
        return {}
    runs = [
        (bound_s / one.time_s, report.rows[at], name, one.time_s)
        for at, bound_s in _bounds(report, links.network, crowded=True).items()
        for name, one in _measured(report.rows[at])
        if one.time_s > 0
    ]
    impossible = [run for run in runs if run[0] >= _IMPOSSIBLE]
    if not impossible:
        return {}
    # Bandwidth decides the time of large sizes, so they say most about the rate of a link.
    _, row, name, time_s = max(impossible, key=lambda run: (run[1].size_bytes, run[0]))
    found = {}
    for at, fault in enumerate(links.faults):
        alone, others = links.network, [*links.faults[:at], *links.faults[at + 1 :]]
        for number, other in enumerate(others):
            alone = repaired(alone, links.sound, other, (fault, *others[number + 1 :]))
        bound_s = _bounds(replace(report, rows=(row,)), alone, crowded=True).get(0, 0.0)
        if bound_s >= _IMPOSSIBLE * time_s:
            found[at] = (
                f"{row.collective} of {format_size(row.size_bytes)} by {name} took {_time(time_s)}, and over "
                f"such a link it takes {_time(bound_s)} at least"
            )
    return found


def _time(time_s: float) -> str:
    return f"{time_s * 1e3:.3g} ms" if time_s >= 1e-3 else f"{time_s * 1e6:.3g} us"


def _measured_s(report: Report | None, terms: Terms, name: str) -> float | None:
    """Return the measured time of the collective by which faults are priced; None if it did not run."""
    for row in report.rows if report else ():
        if (row.collective, row.size_bytes) == (terms.collective, terms.size_bytes):
            times_s = {library: one.time_s for library, one in _measured(row)}
            return times_s.get(name) or None
    return None


def _hosts_of(fault: Fault, profile: Profile) -> tuple[str, ...]:
    """Return the hosts that a fault names, alone or with a NIC; none if it names other parts."""
    names = dict.fromkeys(one.host for one in profile.ranks)
    named = [part.split()[0] for part in fault.parts]
    return tuple(dict.fromkeys(host for host in named if host in names))


def _joined(hosts: Sequence[Culprit], faults: Sequence[tuple[Fault, Culprit]]) -> Iterator[Culprit]:
    """Yield all culprits; a host's problem that explains slow links absorbs their evidence and cost."""
    causes = list(hosts)
    for _, slow in faults:
        at = next((at for at, one in enumerate(causes) if _explains(one, slow)), None)
        if at is None:
            yield slow
            continue
        cause = causes[at]
        causes[at] = replace(
            cause,
            severity="fault" if slow.hosts == cause.hosts else cause.severity,
            evidence=(*cause.evidence, slow.text, *slow.evidence),
            cost=cause.cost or slow.cost,
            library_cost=cause.library_cost or slow.library_cost,
            sure=slow.sure if slow.hosts == cause.hosts else cause.sure,
        )
    yield from causes


def _explains(cause: Culprit, slow: Culprit) -> bool:
    """Return whether a host's own problem is the reason for its slow links."""
    if len(cause.hosts) != 1:
        return False
    fact = cause.part.partition(" ")[2]
    wire = cause.kind in _SLOWS_LINKS or (cause.kind == "differs" and fact.startswith("mtu"))
    if cause.hosts != slow.hosts:
        # One slow link of a host is explained by the host's problem only if it is not a confirmed fault.
        of_host = cause.hosts[0] in slow.hosts and slow.kind in ("pair", "one_way_pair")
        return of_host and slow.severity == "remark" and (wire or cause.kind in _SLOWS_HOST)
    if slow.kind == "cpu":
        return cause.kind in _SLOWS_HOST
    if cause.kind == "quota":
        # A host without cores sends, receives and answers late, or only at times.
        return slow.kind in ("egress", "ingress", "host", "latency", "flapping")
    return wire and slow.kind in ("egress", "ingress", "host", "loss", "flapping", "latency")


def _of_report(report: Report | None) -> Iterator[Culprit]:
    doubts = dict.fromkeys(row.crowded for row in report.rows if row.crowded) if report else {}
    for doubt in doubts:
        yield Culprit(
            "crowded",
            "collectives",
            (),
            "remark",
            f"times of collectives are not reliable: {doubt}",
            remedy="test while nothing else runs on the hosts, with at most one rank a core",
        )
    for wrong in report.wrong_results if report else ():
        yield Culprit(
            "wrong",
            "results",
            (),
            "fault",
            f"a collective gave a wrong result: {wrong}",
            remedy="run ccctl bench again with fewer hosts until the results are right; the host that was "
            "left out last is at fault",
        )


def _of_integrity(measured: Measured) -> Iterator[Culprit]:
    """Yield each rank and each link that corrupts data, and each library that gave two results."""
    found = measured.report.integrity if measured.report else None
    if found is None:
        return
    hosts = dict(enumerate(one.host for one in measured.profile.ranks)) if measured.profile else {}
    for one in found.corruptions:
        yield _of_corruption(one, hosts)
    for name, ranks in found.unlike.items():
        if name != "ccctl" or not found.corruptions:
            yield _of_unlike(name, ranks, found.collective)


def _of_corruption(one: Corruption, hosts: Mapping[int, str]) -> Culprit:
    rank_name, peer_name = (f"{hosts.get(rank, '')} rank {rank}".strip() for rank in (one.rank, one.peer))
    named = tuple(dict.fromkeys(hosts[rank] for rank in (one.peer, one.rank) if rank in hosts))
    if one.step < 0:
        detail = "the checksum of its output differs from the reference, although those of its steps agree"
    else:
        detail = f"the checksum of step {one.step} of the program ({one.op}) differs from the reference"
        detail += f"; {one.steps} steps went wrong here, this one first" if one.steps > 1 else ""
    evidence = (detail,)
    if one.kind == "link":
        text = f"data from {peer_name} to {rank_name} arrives changed, and no error is reported"
        remedy = "look at the error counters of both NICs and of the switch; swap the cable, then each NIC"
        return Culprit(
            "corrupt_link", f"{peer_name} and {rank_name}", named, "fault", text, evidence, "certain", remedy
        )
    text = f"{rank_name} computes wrong results from correct data, and no error is reported"
    remedy = "take the host out; test its memory (ECC counters, memtester) and its processor or GPU"
    return Culprit("corruption", rank_name, named, "fault", text, evidence, "certain", remedy)


def _of_unlike(name: str, ranks: Sequence[int], kind: Kind) -> Culprit:
    text = (
        f"two runs of {name}'s {kind} on the same inputs gave different bits on {plural(len(ranks), 'rank')}"
    )
    remedy = (
        "if results must be repeatable, have the library always use the same algorithm; "
        "if they differ even then, data is being corrupted"
    )
    return Culprit("unrepeatable", name, (), "fault" if name == "ccctl" else "remark", text, remedy=remedy)


def _of_evidence(one: Evidence) -> Culprit:
    where = " ".join(filter(None, (one.host, one.part))) or one.tool
    hosts = (one.host,) if one.host else ()
    return Culprit(one.kind, where, hosts, one.severity, one.text, (f"measured by {one.tool}",), "likely")


def _rank(culprit: Culprit) -> tuple[int, float, str, str]:
    """Return a sort key: faults before remarks, then the costliest first."""
    times = culprit.cost.times if culprit.cost else (float("inf") if culprit.kind == "dead" else 1.0)
    return (int(culprit.severity == "remark"), -times, culprit.kind, culprit.part)


def _verdict(culprits: Sequence[Culprit], measured: Measured, stages: Sequence[Stage]) -> tuple[Verdict, str]:
    """Return the verdict and its reason in one sentence."""
    faults = [one for one in culprits if one.severity == "fault"]
    remarks = plural(len(culprits) - len(faults), "remark")
    tested = len(_tested(measured))
    if faults:
        bad = {host for one in faults for host in one.hosts}
        where = f" on {len(bad)} of {plural(max(tested, len(bad)), 'host')}" if bad else ""
        return "refused", f"{plural(len(faults), 'fault')}{where}: {faults[0].text}"
    if any(_UNCONFIRMED in one.evidence for one in culprits):
        return "undecided", "no fault is certain, but links stand out that could not be measured often enough"
    undone = [stage.label for stage in stages if not stage.done]
    undone += ["links"] if measured.profile is None else []
    undone += ["collectives"] if measured.report is None else []
    if undone:
        named = " and ".join(dict.fromkeys(undone))
        return "undecided", f"no fault was found, but {named} could not be tested to the end"
    sound = f"no fault on {plural(tested, 'host')}"
    if culprits:
        return "accepted with remarks", f"{sound}, {remarks}"
    return "accepted", sound


def _whole(report: Report | None, links: _Links) -> Iterator[WholeRow]:
    """Yield each measured collective, of ccctl and of libraries, with the bounds on its time."""
    if report is None:
        return
    as_is, bought = _bounds(report, links.network), _bounds(report, links.offered)
    for at, row in enumerate(report.rows):
        for name, one in _measured(row):
            yield WholeRow(
                row.collective,
                row.size_bytes,
                name,
                one.time_s,
                as_is.get(at),
                bought.get(at),
                one.wrong,
                one.algbw_gbs,
                one.busbw_gbs,
            )


def _measured(row: Row) -> Iterator[tuple[str, Measurement]]:
    if row.shown is not None:
        yield "ccctl", row.shown
    yield from row.peers.items()


def _bounds(report: Report, network: Network | None, *, crowded: bool = False) -> dict[int, float]:
    """Return {number of a row: proven lower bound on its time}; with ``crowded`` also where cores lacked."""
    if network is None or network.ranks != report.ranks or report.ranks > _MOST_BOUND_RANKS:
        return {}
    try:
        bounds_s = {id(one.row): one.bound.time_s for one in judged(report, network)}
    except CcctlError:
        return {}
    # A bound from the links says nothing about the time of ranks that wait for cores.
    return {
        at: bounds_s[id(row)]
        for at, row in enumerate(report.rows)
        if id(row) in bounds_s and (crowded or not row.crowded)
    }


def _spares(links: _Links, terms: Terms) -> tuple[Spares, ...]:
    if not terms.spares or links.network is None or links.sound is None:
        return ()
    return (
        spares(links.network, links.sound, links.faults, terms.spares, terms.collective, terms.size_bytes),
    )


def _unread(health: ClusterHealth | None) -> dict[str, str]:
    """Return {unread fact: reasons}; a reason has the number of its hosts unless it holds for all."""
    reasons: dict[tuple[str, str], int] = {}
    hosts = list(health.every()) if health else []
    for one in hosts:
        for what, why in one.unread.items():
            reasons[what, why] = reasons.get((what, why), 0) + 1
    every = len(hosts)
    found: dict[str, str] = {}
    for (what, why), count in reasons.items():
        text = why if count == every else f"{why} ({count} of {every} hosts)"
        found[what] = f"{found[what]}; {text}" if what in found else text
    return found


def _versions(measured: Measured) -> dict[str, str]:
    found = dict(measured.report.machine) if measured.report else {}
    if measured.profile:
        found["library"] = measured.profile.library
    return dict(sorted(found.items()))


def _serials(measured: Measured) -> dict[str, str]:
    """Return the serial number of each machine and the UUID of each GPU, as far as they could be read."""
    found = {one.host: one.serial for one in measured.health.hosts} if measured.health else {}
    for host in measured.topology.hosts if measured.topology else ():
        found |= {f"{host.name} GPU {gpu.index}": gpu.uuid for gpu in host.gpus}
    return {name: number for name, number in found.items() if number}
