"""Breakdowns of runs on real ranks."""

import json

import pytest
from joined import run_joined, run_over_mpi

from exec.benchmark.run_logs import RunLogs
from exec.peers.base import Call

# A ring of 1 MiB on every rank; as the plans see it a host has so many ranks. Rank 1 sleeps in each run.
SCRIPT = """
    import json, time
    from dataclasses import asdict
    import numpy as np
    from exec.benchmark.timing import Repetitions, interleaved
    from exec.benchmark.run_logs import Clocks, RunLogs
    from exec.mpi import connections
    from exec.mpi.plan import MpiPlan
    from exec.peers.base import Call
    from exec.program.layout import Layout
    from probes.live.host_identity import host_key
    from probes.base.progress import SILENT
    from sample_schedules import ring_all_reduce
    from synth.compiler.lowering import lower

    per_host, sleep_s = int(sys.argv[4]), float(sys.argv[5])
    connections.host_key = lambda: (*host_key(), rank // per_host)
    layout = Layout(lower(ring_all_reduce(size)), 1 << 18)
    send, recv = (np.ones(1 << 18, np.float32) for _ in range(2))
    plan = MpiPlan(layout, comm, send, recv, traced=True)

    def run():
        if rank == 1:
            time.sleep(sleep_s)
        plan.run()

    call = Call(run, recv, close=plan.close, kept=plan.kept)
    logs = RunLogs(call)
    keep = lambda number, *run: logs.keep(*run)
    times_s = interleaved(comm, [call], ["ring"], Repetitions(1, 3), SILENT, keep)
    clocks = Clocks((0,) * size, 0)
    breakdown = logs.breakdown(comm, times_s[0].tolist(), "out of place", clocks, None, None)
    again = comm.allgather(breakdown)
    assert all(each == breakdown for each in again)
    assert (recv == size).all()
    call.close()
    print(json.dumps([times_s[0].tolist(), asdict(breakdown)]))
"""


@pytest.mark.parametrize("per_host", [3, 1], ids=["one host", "three hosts"])
def test_a_rank_that_sleeps_is_late_and_the_parts_are_the_time(tmp_path, per_host):
    examine(run_joined(tmp_path, 3, SCRIPT, str(per_host), "0.3"), per_host)


@pytest.mark.mpi
def test_it_is_the_same_over_wires_of_mpi(tmp_path):
    examine(run_over_mpi(tmp_path, 3, SCRIPT, "1", "0.3"), 1)


def examine(said, per_host):
    """Whether the breakdown that three ranks tell is that of rank 1, which slept."""
    told = [json.loads(each) for each in said]
    breakdown = told[0][1]
    slowest_s = [max(each) for each in zip(*(times_s for times_s, _ in told), strict=True)]
    assert breakdown["time_s"] == pytest.approx(slowest_s[breakdown["iteration"]], abs=1e-6)
    assert sorted(slowest_s)[1] == pytest.approx(slowest_s[breakdown["iteration"]])
    assert sum(part["time_s"] for part in breakdown["parts"]) == pytest.approx(breakdown["time_s"])
    # The time of messages also depends on other work of the machine.
    late_s = {part["where"]: part["time_s"] for part in breakdown["parts"] if part["kind"] == "late"}
    assert late_s["rank 1"] >= 0.29
    late = [own["late_s"] for own in breakdown["ranks"]]
    assert max(late) == late[1] > late[0] + late[2]
    assert all(own["adding_s"] > 0 and own["copying_s"] > 0 for own in breakdown["ranks"])
    links = {part["where"] for part in breakdown["parts"] if part["kind"] == "link"}
    assert links <= ({"0 -> 1", "1 -> 2", "2 -> 0"} if per_host == 1 else set())


class _Alone:
    """A world of one rank."""

    def allgather(self, value):
        return [value]


def test_where_no_log_is_written_the_breakdown_says_so():
    logs = RunLogs(Call(lambda: None, None))
    logs.keep(0, 0.0, 1.0)
    breakdown = logs.breakdown(_Alone(), [3.0, 1.0, 2.0], "in place", None, None, None)
    assert (breakdown.time_s, breakdown.iteration, breakdown.parts, breakdown.ranks) == (2.0, 2, (), ())
    assert "no log" in breakdown.why_empty
