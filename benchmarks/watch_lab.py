"""`ccctl watch` in an emulated cluster: a quiet network, then a halved link, a slow host, and both mended.

    python -P benchmarks/watch_lab.py [--size 8M] [--rounds 3] [--cases link,host]

Makes a lab of four hosts at 100 Mbit/s, a profile and a schedule, and watches twice. Then one link, or the
sending of one host, is slowed down, and a watch runs again. The schedules that were current before and after
it run in turn on the slower network; the measured factor between them is compared with the predicted one.
Needs root, for the lab.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from ccctl.artifacts import codec
from probes.base import parse_size

sys.path.insert(0, str(Path(__file__).parent))

from lab_cases import CCCTL, lab

CASES = ("link", "host")
LAB = 'hosts = "gpu[1-4]"\nrate = "100Mbit/s"\n'
TARGET = 0.15


def inside(name: str, *words: object, fine: tuple[int, ...] = (0,)) -> tuple[int, str]:
    """Return (status, stdout) of a command of ccctl in the first host; exit on an unexpected status."""
    line = [*CCCTL, "lab", "run", "--lab", name, "--", *CCCTL, *map(str, words)]
    done = subprocess.run(line, capture_output=True, text=True)
    if done.returncode not in fine:
        sys.exit(f"{' '.join(map(str, words))}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.returncode, done.stdout


def watched(name: str, folder: Path, state: str) -> tuple[int, dict[str, Any]]:
    """Run a watch; return (status, summary)."""
    given = ("--baseline", folder / "profile.json", "--schedule", folder / "schedule.json")
    status, told = inside(name, "watch", *given, "--state", folder / state, "--json", fine=(0, 1))
    return status, json.loads(told)


def shape(name: str, *change: str) -> None:
    """Change rates of the running lab."""
    environment = os.environ | {"CCCTL_LAB": name}
    subprocess.run([*CCCTL, "lab", "shape", "-q", *change], env=environment, check=True)


def taken_s(name: str, schedule: Path, size: str) -> float:
    """Return the seconds of one timed run of a schedule after an untimed one, with every element checked."""
    words = ("-b", size, "-e", size, "--iters", "1", "-w", "1", "--placement", "out", "--json")
    _, told = inside(name, "bench", schedule, *words)
    row = json.loads(told)["rows"][0]
    if row["wrong"]:
        sys.exit(f"{schedule}: {row['wrong']} elements are wrong")
    return float(row["p50_us"]) / 1e6


def change_of(name: str, schedule: Path) -> tuple[str, str]:
    """Return (the change, the start of its event): the link that the schedule uses most, or a host."""
    if name == "host":
        return "gpu3.egress = 25Mbit/s", "host gpu3 sends"
    body = codec.read(str(schedule), "schedule").body
    busiest = int(np.bincount(body.link, minlength=body.network.links).argmax())
    src, dst = (body.network.hosts[ends[busiest]] for ends in (body.network.src, body.network.dst))
    return f"{src} -> {dst} = 50Mbit/s", f"{src} → {dst}"


def case(name: str, lab_name: str, folder: Path, options: argparse.Namespace) -> None:
    """Print what one change does."""
    change, expected = change_of(name, folder / "schedule.json")
    quiet = [watched(lab_name, folder, name) for _ in range(2)]
    statuses = [status for status, _ in quiet]
    print(f"{name}: quiet twice: exit {statuses}, events {[told['events'] for _, told in quiet]}")
    before = folder / f"{name}-before.json"
    before.write_bytes((folder / name / "current.json").read_bytes())
    shape(lab_name, change)
    status, told = watched(lab_name, folder, name)
    named = told["events"][0]["what"] if told["events"] else "nothing"
    right = "right" if named.startswith(expected) else f"expected {expected}"
    print(f"{name}: {change}: exit {status}, names {named} ({right}) in {told['seconds']:.1f} s")
    for finding in told["findings"]:
        print(f"    {finding}")
    if told["resynthesized"]:
        after = folder / name / "current.json"
        times: dict[Path, list[float]] = {before: [], after: []}
        for _ in range(options.rounds):
            for schedule, taken in times.items():
                taken.append(taken_s(lab_name, schedule, str(parse_size(options.size, "--size"))))
        old_s, new_s = (median(taken) for taken in times.values())
        measured, predicted = old_s / new_s, told["predicted_gain"]
        off = measured / predicted - 1
        held = "met" if abs(off) <= TARGET else "missed"
        print(
            f"{name}: old {old_s:.3f} s, new {new_s:.3f} s: {measured:.2f} times as fast, "
            f"predicted {predicted:.2f} ({off:+.0%}; target ± {TARGET:.0%}: {held})"
        )
    else:
        print(f"{name}: the schedule stays; predicted gain {told['predicted_gain']:.2f}")
    again, told = watched(lab_name, folder, name)
    print(f"{name}: again: exit {again}, resynthesized {told['resynthesized']}")
    shape(lab_name, "--from", str(folder / "watch.toml"))
    back, told = watched(lab_name, folder, name)
    kinds = [event["kind"] for event in told["events"]]
    print(
        f"{name}: mended: exit {back}, events {kinds}, given schedule again: {told['returned']}", flush=True
    )


def main() -> None:
    """Print the figures of each case."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", default="8M")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", default=",".join(CASES))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        with lab("watch", LAB, place) as name:
            inside(name, "profile", "-q", "-o", folder / "profile.json")
            synth = ["synth", "-q", "--network", folder / "profile.json", "--size", options.size]
            subprocess.run([*CCCTL, *map(str, synth), "-o", str(folder / "schedule.json")], check=True)
            for one in options.cases.split(","):
                case(one, name, folder, options)


if __name__ == "__main__":
    main()
