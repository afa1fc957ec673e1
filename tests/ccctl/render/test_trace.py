"""`ccctl simulate --trace`: what the trace says is what the simulation found, on every link and port."""

import gzip
import itertools
import json
from collections import defaultdict

import numpy as np
import pytest
from sample_schedules import random_schedule

from ccctl.artifacts import codec
from ccctl.render import chrome_trace, trace
from synth.collective import KINDS
from synth.compiler.lowering import lower
from synth.simulation.program import Costs, simulate_program
from synth.simulation.schedule import replay

# A picosecond: what times are rounded to.
CLOSE_US = 1.01e-6


def load(path):
    """(track -> its group and name, track -> its slices in time) of a trace."""
    document = json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_text())
    groups, tracks, slices = {}, {}, defaultdict(list)
    for event in document["traceEvents"]:
        if event["ph"] == "X":
            slices[event["tid"]].append(event)
            assert tracks[event["tid"]][0] == groups[event["pid"]]
        elif event["name"] == "process_name":
            groups[event["pid"]] = event["args"]["name"]
        elif event["name"] == "thread_name":
            assert event["tid"] not in tracks
            tracks[event["tid"]] = (groups[event["pid"]], event["args"]["name"])
    return (
        document["otherData"],
        tracks,
        {tid: sorted(found, key=lambda e: e["ts"]) for tid, found in slices.items()},
    )


def assert_no_overlap(slices):
    for found in slices.values():
        for one, two in itertools.pairwise(found):
            assert one["ts"] + one["dur"] <= two["ts"] + 1e-9


@pytest.fixture(scope="module")
def with_ports():
    """A function that gives a schedule's network a NIC for each sender: its links then take turns."""
    from dataclasses import replace

    from probes.base.columns import ints

    def share(schedule):
        network = schedule.network
        ports = tuple(f"nic{rank}" for rank in range(network.ranks))
        start = ints(np.arange(network.links + 1))
        shared = replace(network, ports=ports, link_port_start=start, link_port=network.src)
        return replace(schedule, network=shared)

    return share


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_a_schedules_trace_is_its_simulation(kind, name, with_ports, tmp_path, monkeypatch):
    monkeypatch.setattr(trace, "BLOCK", 5)
    schedule = with_ports(random_schedule(kind, 4, 2, 7))
    network, timing = schedule.network, replay(schedule)
    about = {"time_us": timing.time_s * 1e6}
    chrome_trace.write_trace(
        str(tmp_path / name), about, trace.schedule_tracks(network), trace.schedule_blocks(schedule, timing)
    )
    _, tracks, slices = load(tmp_path / name)
    assert_no_overlap(slices)
    assert len(tracks) == network.links + len(network.ports)
    for link in range(network.links):
        rows = np.flatnonzero(schedule.link == link)
        rows = rows[np.argsort(timing.start_s[rows])]
        found = slices.get(link + 1, [])
        assert tracks[link + 1] == (
            f"rank {network.src[link]} on {network.hosts[network.src[link]]}",
            f"{network.src[link]}→{network.dst[link]}",
        )
        assert [e["args"]["chunk"] for e in found] == schedule.chunk[rows].tolist()
        assert [e["args"]["bytes"] for e in found] == [schedule.chunk_bytes] * len(rows)
        assert np.allclose([e["ts"] for e in found], timing.start_s[rows] * 1e6, atol=CLOSE_US)
        assert np.allclose(
            [e["dur"] for e in found], network.hold_s(schedule.chunk_bytes)[link] * 1e6, atol=CLOSE_US
        )
        assert np.allclose(
            [e["args"]["arrives_us"] for e in found], timing.arrival_s[rows] * 1e6, atol=CLOSE_US
        )
    for port in range(len(network.ports)):
        moments = sorted(e["ts"] for e in slices.get(network.links + port + 1, []))
        of_links = sorted(
            e["ts"] for link in np.flatnonzero(network.src == port) for e in slices.get(link + 1, [])
        )
        assert moments == of_links
    ends = [e["args"]["arrives_us"] for found in slices.values() for e in found if "arrives_us" in e["args"]]
    assert max(ends) == pytest.approx(timing.time_s * 1e6, abs=CLOSE_US)


def test_a_programs_trace_has_its_instructions_and_its_links(with_ports, tmp_path, monkeypatch):
    monkeypatch.setattr(trace, "BLOCK", 7)
    schedule = with_ports(random_schedule("all_reduce", 4, 3, 3))
    program, network = lower(schedule), schedule.network
    timing = simulate_program(program, network, 1000, Costs())
    path = tmp_path / "t.json"
    chrome_trace.write_trace(
        str(path),
        {},
        trace.program_tracks(program, network),
        trace.program_blocks(program, network, 1000, timing),
    )
    _, tracks, slices = load(path)
    assert_no_overlap(slices)
    for block in range(program.threadblocks):
        rows = np.arange(program.tb_start[block], program.tb_start[block + 1])
        found = slices[block + 1]
        assert [e["args"]["step"] for e in found] == list(range(len(rows)))
        assert np.allclose([e["ts"] for e in found], timing.start_s[rows] * 1e6, atol=CLOSE_US)
        assert np.allclose(
            [e["dur"] for e in found], (timing.end_s - timing.start_s)[rows] * 1e6, atol=CLOSE_US
        )
        assert tracks[block + 1][0].startswith(f"rank {program.tb_rank[block]} ")
    busy_us = np.array(
        [
            sum(e["dur"] for e in slices.get(program.threadblocks + link + 1, []))
            for link in range(network.links)
        ]
    )
    assert np.allclose(busy_us, timing.link_busy * timing.time_s * 1e6, atol=1e-3)
    waited = {
        e["args"]["started_after"] for found in slices.values() for e in found if "started_after" in e["args"]
    }
    assert {"start", "wait", "message", "link"} <= waited


def test_the_command_writes_it_and_says_how_busy_links_are(run_ccctl, samples, tmp_path):
    codec.write(str(tmp_path / "s.json"), "schedule", samples["schedule"])
    found = json.loads(run_ccctl("simulate", "s.json", "--trace", "t.json.gz", "--json").stdout)
    about, _, slices = load(tmp_path / "t.json.gz")
    assert about["time_us"] == pytest.approx(found["time_s"] * 1e6)
    assert sum(len(of_track) for of_track in slices.values()) == 2 * samples["schedule"].sends
    told = found["utilization"]
    assert told["links"]["min"] <= told["links"]["mean"] <= told["links"]["max"] <= 1
    assert 100 * told["links"]["max"] == pytest.approx(found["busiest_link_percent"])
    assert [one["name"] for one in told["busiest"]] == [f"port nic{number}" for number in range(4)]
    # Every NIC carries the one link of its rank.
    assert told["ports"] == told["links"]
    assert run_ccctl("simulate", "s.json", "--trace", "-").stdout.startswith('{"displayTimeUnit"')
    held = json.loads(run_ccctl("simulate", "s.json", "--hold-alpha", "--json").stdout)
    assert held["time_s"] == pytest.approx(found["time_s"])
    assert held["utilization"]["links"]["max"] == pytest.approx(1)
    assert found["utilization"]["links"]["max"] < held["utilization"]["links"]["max"]


def test_a_program_is_traced_by_the_command_too(run_ccctl, samples, tmp_path):
    codec.write(str(tmp_path / "p.json"), "program", samples["program"])
    on = ("--network", "ring:2", "--bandwidth", "1GB/s", "--size", "1M")
    done = run_ccctl("simulate", "p.json", *on, "--trace", "t.json")
    assert done.returncode == 0, done.stderr
    assert "busiest" in done.stdout
    _, tracks, slices = load(tmp_path / "t.json")
    names = {tracks[tid][1] for tid in slices}
    assert names == {"threadblock 0", "0→1"}


def test_a_trace_that_cannot_be_written_is_refused_first(run_ccctl, samples, tmp_path):
    codec.write(str(tmp_path / "s.json"), "schedule", samples["schedule"])
    done = run_ccctl("simulate", "s.json", "--trace", "nowhere/t.json")
    assert (done.returncode, done.stdout) == (73, "")
