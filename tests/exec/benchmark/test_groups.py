"""Groups of a step, run at once on real ranks: what they must end with, and rows for every way."""

import pickle

import pytest
from joined import run_over_mpi
from sample_schedules import random_schedule

from exec.benchmark.groups import GroupsRequest, MeasuredGroup
from synth import synthesize
from synth.compiler.lowering import lower
from synth.networks.families import family
from synth.portfolio.request import CollectiveRequest, Request

# On every rank: the step on one host, then as if each rank had a host of its own.
WORKER = """
import pickle, sys
from exec.benchmark.groups import bench_groups_task
from exec.mpi import connections
from probes.base.progress import SILENT

with open(sys.argv[4], "rb") as stream:
    request = pickle.load(stream)
key, reports = connections.host_key, []
for per_host in (3, 1):
    connections.host_key = lambda: (*key(), rank // per_host)
    reports.append(bench_groups_task(comm, request, SILENT))
if rank == 0:
    with open(sys.argv[5], "wb") as stream:
        pickle.dump(reports, stream)
"""
WAYS = ("alone", "planned singly", "planned together")


def measured_groups():
    """Return four groups on three ranks: two on a pair each, one of them later, and two on all ranks."""
    network = family("fully_connected:3", [1e-6], [1e9])

    def planned(request, method):
        asked = Request(network, request.kind, size_bytes=4096, collectives=(request,), method=method, jobs=0)
        return lower(synthesize(asked).listed)

    on_pairs = [
        MeasuredGroup(
            name,
            release_s,
            count,
            planned(request, "greedy"),
            planned(request, "paths"),
            (1e-3, 2e-3, 2e-3),
        )
        for name, release_s, count, request in (
            ("pair", 0.0, 3000, CollectiveRequest("all_gather", 0, (0, 1))),
            ("late", 0.02, 17, CollectiveRequest("all_to_all", 1, (1, 2))),
        )
    ]
    drawn = [
        MeasuredGroup(
            kind,
            0.0,
            count,
            lower(random_schedule(kind, 3, 2, 1)),
            lower(random_schedule(kind, 3, 4, 2)),
            (1e-3,) * 3,
        )
        for kind, count in (("all_reduce", 40_000), ("reduce_scatter", 5))
    ]
    return [*on_pairs, *drawn]


@pytest.mark.mpi
def test_groups_at_once_are_right_within_a_host_and_between_hosts(tmp_path):
    groups = measured_groups()
    request = GroupsRequest(tuple(groups), (3e-3, 3e-3), "float64", "sum", 1, 3)
    (tmp_path / "request").write_bytes(pickle.dumps(request))
    run_over_mpi(tmp_path, 3, WORKER, str(tmp_path / "request"), str(tmp_path / "reports"))
    for report in pickle.loads((tmp_path / "reports").read_bytes()):
        names = [f"{group.name}: {way}" for group in groups for way in WAYS]
        assert [row.program for row in report.rows] == [*names, *(f"whole step: {way}" for way in WAYS[1:])]
        assert report.problems() == [] and report.wrong_results == []
        assert {row.out_of_place.wrong for row in report.rows} == {0}
        *of_groups, singly, together = report.rows
        assert [row.predicted_s for row in of_groups] == [s for group in groups for s in group.predicted_s]
        # The whole ends no sooner than the data of the last group is there.
        assert min(singly.out_of_place.time_s, together.out_of_place.time_s) >= 0.02
        assert singly.size_bytes == sum(row.size_bytes for row in of_groups[:: len(WAYS)])
