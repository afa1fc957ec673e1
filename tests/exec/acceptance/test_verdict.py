"""The verdict: what refuses a cluster, what is only a remark, and what is said once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from measured_clusters import host_health, measured_profile, measured_report

from exec.acceptance import Measured, Stage, Terms, bought, judge
from exec.benchmark import Integrity
from exec.benchmark.foreign import Evidence
from exec.program import Corruption
from probes.health import ClusterHealth, CpuLimit, GpuHealth, HostHealth
from probes.link_costs import Profile
from synth.collective import Kind

STAGES = tuple(Stage(name, 1.0, done=True) for name in ("hosts", "links", "whole"))
SIZE_BYTES = 1 << 26
KIND: Kind = "all_reduce"


def _measured(
    profile: Profile, hosts: Sequence[HostHealth] = (), evidence: tuple[Evidence, ...] = ()
) -> Measured:
    health = ClusterHealth(tuple(hosts)) if hosts else None
    return Measured(None, health, profile, measured_report(len(profile.ranks)), evidence)


def _terms(spec: str = "", spares: int = 0) -> Terms:
    return Terms(bought(spec) if spec else None, None, spares, KIND, SIZE_BYTES)


def test_a_sound_cluster_is_accepted() -> None:
    found = judge(_measured(measured_profile(6)), _terms(), STAGES)
    assert (found.verdict, found.culprits) == ("accepted", ())
    assert found.ranks == 6
    assert len(found.tested) == 6


def test_a_slow_sender_refuses_and_has_its_cost() -> None:
    profile = measured_profile(6, slow_senders={2: 0.5})
    found = judge(_measured(profile), _terms(), STAGES)
    assert found.verdict == "refused"
    [culprit] = found.culprits
    assert (culprit.kind, culprit.part, culprit.hosts) == ("egress", "n2", ("n2",))
    assert culprit.cost is not None
    # A ring is as fast as its slowest link.
    assert culprit.cost.times == pytest.approx(2.0, rel=0.1)
    assert culprit.remedy
    assert "n2" in found.reason


def test_all_links_slow_by_the_same_part_are_found_by_what_was_bought() -> None:
    profile = measured_profile(6, rate_bytes_per_s=6e9)
    assert judge(_measured(profile), _terms(), STAGES).verdict == "accepted"
    found = judge(_measured(profile), _terms("100Gbit/s"), STAGES)
    assert found.verdict == "refused"
    assert [one.kind for one in found.culprits] == ["fabric"]
    assert "what was bought" in found.reason


def test_a_host_without_an_answer_refuses() -> None:
    found = judge(_measured(measured_profile(4)), _terms(), STAGES, {"n9": "no route to host"})
    assert found.verdict == "refused"
    [culprit] = found.culprits
    assert (culprit.kind, culprit.hosts) == ("dead", ("n9",))
    assert "no route to host" in culprit.text
    assert found.skipped == {"n9": "no route to host"}


def test_another_version_is_a_remark_and_named_by_its_host() -> None:
    hosts = tuple(host_health(f"n{at}", driver="570.1" if at == 3 else "580.2") for at in range(5))
    found = judge(_measured(measured_profile(5), hosts), _terms(), STAGES)
    assert found.verdict == "accepted with remarks"
    [culprit] = found.culprits
    assert (culprit.kind, culprit.hosts, culprit.severity) == ("differs", ("n3",), "remark")
    assert "570.1" in culprit.text


def test_a_small_mtu_explains_the_slow_host_and_takes_its_cost_over() -> None:
    hosts = tuple(host_health(f"n{at}", **{"mtu eth0": "576" if at == 1 else "9000"}) for at in range(6))
    profile = measured_profile(6, slow_senders={1: 0.6}, slow_receivers={1: 0.6})
    found = judge(_measured(profile, hosts), _terms(), STAGES)
    [culprit] = found.culprits
    assert (culprit.kind, culprit.hosts, culprit.severity) == ("differs", ("n1",), "fault")
    assert "mtu" in culprit.part
    assert culprit.cost is not None
    assert culprit.cost.times > 1.3
    assert any("sends and receives" in line for line in culprit.evidence)


def test_a_cpu_quota_explains_a_host_that_is_slow_at_times() -> None:
    limits = [CpuLimit(cores=0.3, ranks=1, online=2) if at == 1 else None for at in range(6)]
    hosts = [replace(host_health(f"n{at}"), cpu_limit=limit) for at, limit in enumerate(limits)]
    profile = measured_profile(6)
    p90 = np.where(profile.links.src == 1, 3.0, 1.03) * profile.links.beta_s_per_byte
    links = replace(profile.links, beta_median_s_per_byte=p90, beta_p90_s_per_byte=p90)
    [culprit] = judge(_measured(replace(profile, links=links), hosts), _terms(), STAGES).culprits
    assert (culprit.kind, culprit.hosts, culprit.severity) == ("quota", ("n1",), "fault")
    assert any("unsteady" in line for line in culprit.evidence)


def test_a_cpu_quota_explains_single_links_that_were_measured_too_seldom() -> None:
    limits = [CpuLimit(cores=0.3, ranks=1, online=2) if at == 1 else None for at in range(6)]
    hosts = [replace(host_health(f"n{at}"), cpu_limit=limit) for at, limit in enumerate(limits)]
    profile = measured_profile(6)
    pairs = list(zip(profile.links.src.tolist(), profile.links.dst.tolist(), strict=True))
    slow = np.array([pair in ((1, 4), (2, 1)) for pair in pairs])
    columns = {
        name: np.where(slow, 1.3, 1.0) * getattr(profile.links, name)
        for name in profile.links.__dataclass_fields__
        if name.startswith("beta")
    }
    links = replace(profile.links, **columns, flags=tuple("starved" if one else "" for one in slow))
    [culprit] = judge(_measured(replace(profile, links=links), hosts), _terms(), STAGES).culprits
    assert (culprit.kind, culprit.hosts, culprit.sure) == ("quota", ("n1",), "certain")
    assert sum("carry" in line for line in culprit.evidence) == 2


def test_the_same_remark_of_all_hosts_is_one_culprit() -> None:
    hosts = [replace(host_health(f"n{at}"), acs=("0000:00:01.0",)) for at in range(4)]
    gpus = [replace(one, gpus=(_gpu("0000:10:00.0"), _gpu("0000:11:00.0"))) for one in hosts]
    found = judge(_measured(measured_profile(4), gpus), _terms(), STAGES)
    kinds = [one.kind for one in found.culprits]
    assert kinds.count("acs") == 1
    [acs] = [one for one in found.culprits if one.kind == "acs"]
    assert acs.part.startswith("4 hosts")


def test_faults_of_other_tools_refuse() -> None:
    evidence = (Evidence("dcgm", "n1", "GPU 3", "memory", "fault", "GPU 3 failed the memory test"),)
    found = judge(_measured(measured_profile(4), evidence=evidence), _terms(), STAGES)
    assert found.verdict == "refused"
    [culprit] = found.culprits
    assert culprit.hosts == ("n1",)
    assert "dcgm" in culprit.evidence[0]


def test_without_any_collective_it_is_undecided() -> None:
    found = judge(Measured(profile=measured_profile(4)), _terms(), STAGES)
    assert found.verdict == "undecided"
    assert "collectives" in found.reason


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_without_a_fault_an_unfinished_stage_leaves_it_undecided(missing: int) -> None:
    stages = [replace(stage, done=at != missing) for at, stage in enumerate(STAGES)]
    found = judge(_measured(measured_profile(4)), _terms(), stages)
    assert found.verdict == "undecided"
    assert ("hosts", "links", "collectives")[missing] in found.reason


def test_a_fault_refuses_even_if_a_stage_is_unfinished() -> None:
    stages = (*STAGES[:2], replace(STAGES[2], done=False))
    found = judge(_measured(measured_profile(6, slow_senders={0: 0.4})), _terms(), stages)
    assert found.verdict == "refused"


def test_the_spared_host_is_the_faulty_one() -> None:
    found = judge(_measured(measured_profile(6, slow_senders={4: 0.3})), _terms(spares=1), STAGES)
    [spared] = found.spares
    assert spared.left_out == ("n4",)
    assert spared.percent == pytest.approx(100, abs=2)


def test_unread_facts_are_told_once_with_the_hosts_that_lack_them() -> None:
    hosts = [host_health(f"n{at}") for at in range(3)]
    hosts[0] = replace(hosts[0], unread={"acs": "root only", "bios": "no SMBIOS"})
    hosts[1] = replace(hosts[1], unread={"bios": "no SMBIOS"})
    hosts[2] = replace(hosts[2], unread={"bios": "no SMBIOS"})
    found = judge(Measured(health=ClusterHealth(tuple(hosts))), _terms(), STAGES)
    assert found.unread == {"acs": "root only (1 of 3 hosts)", "bios": "no SMBIOS"}


def _gpu(bus_id: str) -> GpuHealth:
    return GpuHealth(bus_id, name="NVIDIA H100")


def test_each_row_has_its_own_bound_also_after_one_that_has_none() -> None:
    measured = _measured(measured_profile(4))
    assert measured.report is not None
    [row] = measured.report.rows
    own = replace(row, size_bytes=2 * row.size_bytes)
    unknown = replace(row, collective="custom")
    alone, mixed = (
        judge(replace(measured, report=replace(measured.report, rows=rows)), _terms(), STAGES).whole
        for rows in ((row, own), (unknown, row, own))
    )
    assert all(one.bound_s for one in alone)
    assert mixed[0].bound_s is None
    assert [one.bound_s for one in mixed[1:]] == [one.bound_s for one in alone]


def test_health_alone_is_no_verdict() -> None:
    found = judge(Measured(health=ClusterHealth((HostHealth("n1"),))), _terms(), STAGES)
    assert found.verdict == "undecided"


def test_who_corrupts_data_is_named_and_a_library_that_differs_is_a_remark() -> None:
    measured = _measured(measured_profile(4))
    assert measured.report is not None
    integrity = Integrity(
        KIND,
        SIZE_BYTES,
        0,
        ("ccctl", "mpi"),
        {"mpi": (1, 2)},
        24,
        corruptions=(Corruption("rank", 1, -1, 5, "rrc"), Corruption("link", 3, 2, 9, "r", 2)),
    )
    measured = replace(measured, report=replace(measured.report, integrity=integrity))
    found = judge(measured, _terms(), STAGES)
    assert found.verdict == "refused"
    assert {(one.kind, one.part, one.hosts, one.severity) for one in found.culprits} == {
        ("corruption", "n1 rank 1", ("n1",), "fault"),
        ("corrupt_link", "n2 rank 2 and n3 rank 3", ("n2", "n3"), "fault"),
        ("unrepeatable", "mpi", (), "remark"),
    }
    assert found.integrity == integrity
    alone = replace(integrity, corruptions=(), unlike={"ccctl": (0,)})
    measured = replace(measured, report=replace(measured.report, integrity=alone))
    assert [one.kind for one in judge(measured, _terms(), STAGES).culprits] == ["unrepeatable"]
    assert judge(measured, _terms(), STAGES).verdict == "refused"


def test_a_link_that_a_run_shows_to_be_faster_than_measured_is_a_disturbance() -> None:
    profile = measured_profile(4, slow_senders={2: 0.01})
    measured = _measured(profile)
    assert measured.report is not None
    # At one per cent of 11.5 GB/s, rank 2 needs 218 ms to send its 1.5 times 16 MiB.
    for time_s, disturbed in ((8e-3, True), (250e-3, False)):
        [row] = measured.report.rows
        assert row.out_of_place is not None
        row = replace(row, out_of_place=replace(row.out_of_place, time_s=time_s), crowded="too few cores")
        found = judge(replace(measured, report=replace(measured.report, rows=(row,))), _terms(), STAGES)
        [slow] = [one for one in found.culprits if one.kind == "egress"]
        if disturbed:
            assert (found.verdict, slow.severity, slow.cost, slow.library_cost) == (
                "undecided",
                "remark",
                None,
                None,
            )
            assert "all_reduce of 16M by ccctl took 8 ms" in slow.text
            assert "something disturbed the measurement" in slow.text
        else:
            assert (found.verdict, slow.severity) == ("refused", "fault")
