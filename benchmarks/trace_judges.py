"""Our simulator beside ASTRA-sim and LogGOPSim, on traces of schedules that we write for them.

    python -P benchmarks/trace_judges.py [--astra-sim AstraSim_Analytical_Congestion_Aware]
        [--loggopsim FOLDER]    with txt2bin and LogGOPSim in it
        [--rows]                every schedule, too

ASTRA-sim cuts the time of every message down to whole nanoseconds and takes 1 ns for an add; LogGOPSim counts
its gap for all bytes but the first. The ratio is their time over ours.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from synth.check.schedule import check
from synth.collective import Kind, collective
from synth.errors import NotApplicableError
from synth.methods import bidirectional, direct, doubling, forest, greedy, paths, ring, tree
from synth.networks.families import family
from synth.schedules import Schedule
from synth.simulation.schedule import replay
from synth.traces import astra_sim_files, goal_text

METHODS = (ring, bidirectional, direct, doubling, forest, greedy, paths, tree)
KINDS: tuple[Kind, ...] = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")
CHUNK_BYTES = 1 << 20
AGREE = 0.01


def schedules(
    spec: str, alpha_s: float, bytes_per_s: float, chunk_bytes: int
) -> Iterator[tuple[str, Schedule]]:
    """Yield every method's schedule of every collective that it can run there, checked."""
    network = family(spec, [alpha_s], [bytes_per_s])
    for kind in KINDS:
        shape = collective(kind, network.ranks, 2)
        for method in METHODS:
            try:
                found = method.synthesize(network, shape, chunk_bytes)
            except NotApplicableError:
                continue
            assert check(found) == []
            yield kind, found


def astra_sim_ns(program: str, schedule: Schedule, folder: Path) -> int:
    """Return when ASTRA-sim ends the collective."""
    contents = dict(astra_sim_files(schedule).contents)
    if schedule.collective.kind == "reduce_scatter":
        # ASTRA-sim before mid-2025 takes none; the traces do not say what they are for.
        system = json.loads(contents["system.json"])
        system["all-gather-implementation-custom"] = system.pop("reduce-scatter-implementation-custom")
        contents["system.json"] = json.dumps(system).encode()
        for rank in range(schedule.network.ranks):
            contents[f"workload.{rank}.et"] = contents[f"workload.{rank}.et"].replace(
                b"\x0a\x09comm_type\x48\x07", b"\x0a\x09comm_type\x48\x02"
            )
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    configurations = {
        "workload": "workload",
        "system": "system.json",
        "remote-memory": "memory.json",
        "network": "network.yml",
    }
    words = [f"--{name}-configuration={value}" for name, value in configurations.items()]
    done = subprocess.run([program, *words], cwd=folder, capture_output=True, text=True, check=True)
    ended = [int(number) for number in re.findall(r"finished, (\d+) cycles", done.stdout)]
    assert len(ended) == schedule.network.ranks, done.stdout + done.stderr
    return max(ended)


def loggopsim_ps(tools: Path, schedule: Schedule, folder: Path) -> int:
    """Return the picoseconds after which LogGOPSim ends."""
    (folder / "goal").write_text(goal_text(schedule))
    binary = str(folder / "binary")
    subprocess.run([tools / "txt2bin", "-i", folder / "goal", "-o", binary], capture_output=True, check=True)
    alpha_ps, gap_ps = (
        round(float(column[0]) * 1e12)
        for column in (schedule.network.alpha_s, schedule.network.beta_s_per_byte)
    )
    network = f"-L {alpha_ps} -o 0 -g 0 -G {gap_ps} -S 2000000000"
    done = subprocess.run(
        [tools / "LogGOPSim", "-f", binary, "-b", *network.split()],
        capture_output=True,
        text=True,
        check=True,
    )
    return int(re.findall(r"finishing time at host \d+: (\d+)", done.stdout)[-1])


def judged(asked: argparse.Namespace, schedule: Schedule) -> Iterator[tuple[str, float]]:
    """Yield each requested judge and the nanoseconds after which the schedule ends by it."""
    with tempfile.TemporaryDirectory() as folder:
        if asked.astra_sim:
            yield "ASTRA-sim", float(astra_sim_ns(asked.astra_sim, schedule, Path(folder)))
        if asked.loggopsim:
            yield "LogGOPSim", loggopsim_ps(asked.loggopsim, schedule, Path(folder)) / 1e3


def main() -> None:
    """Print a line for each judge and network."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--astra-sim", help="the program")
    parser.add_argument("--loggopsim", type=Path, help="the folder of its programs")
    parser.add_argument("--rows", action="store_true", help="print every schedule, too")
    asked = parser.parse_args()
    print("| judge | network | schedules | within 1 % | ratio, least | median | most | apart, most |")
    print("|---|---|---|---|---|---|---|---|")
    for spec in ("ring:8", "fully_connected:8", "switch:8"):
        found: dict[str, list[tuple[float, float]]] = {}
        for kind, schedule in schedules(spec, 5e-7, 50e9, CHUNK_BYTES):
            ours_ns = replay(schedule).time_s * 1e9
            for judge, theirs_ns in judged(asked, schedule):
                found.setdefault(judge, []).append((ours_ns, theirs_ns))
                if asked.rows:
                    print(f"  {judge}, {spec}, {kind}, {schedule.method}: {ours_ns:.2f}, {theirs_ns:.2f} ns")
        for judge, times in found.items():
            ratios = sorted(theirs / ours for ours, theirs in times)
            near = sum(abs(ratio - 1) <= AGREE for ratio in ratios)
            apart_ns = max(abs(theirs - ours) for ours, theirs in times)
            print(
                f"| {judge} | {spec} | {len(times)} | {near} | {ratios[0]:.5f} "
                f"| {statistics.median(ratios):.5f} | {ratios[-1]:.5f} | {apart_ns:.1f} ns |",
                flush=True,
            )


if __name__ == "__main__":
    main()
