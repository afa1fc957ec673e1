"""`ccctl watch` in an emulated cluster: quiet, then with a link that slows down, and back."""

import json
import os
import subprocess
import sys
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from limits import HANG_S

from ccctl.artifacts import codec

pytestmark = [pytest.mark.netns, pytest.mark.mpi, pytest.mark.alone, pytest.mark.long]
NUMBERS = count()
CCCTL = [sys.executable, "-P", "-m", "ccctl"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A lab of four hosts at 100 Mbit/s, its profile and a schedule for it."""
    name, folder = f"w{os.getpid()}-{next(NUMBERS)}", tmp_path_factory.mktemp("lab")

    def command(*words, timeout=HANG_S):
        environment = {**os.environ, "CCCTL_LAB": name}
        return subprocess.run(
            [*CCCTL, *map(str, words)], capture_output=True, text=True, timeout=timeout, env=environment
        )

    def inside(*words):
        return command("lab", "run", "--", *CCCTL, *words)

    (folder / "lab.toml").write_text(f'name = "{name}"\nhosts = "gpu[1-4]"\nrate = "100Mbit/s"\n')
    done = command("lab", "up", folder / "lab.toml")
    assert done.returncode == 0, done.stderr
    baseline, schedule = folder / "profile.json", folder / "schedule.json"
    assert inside("profile", "-o", baseline).returncode == 0
    done = command("synth", "--network", baseline, "--size", "1M", "-o", schedule)
    assert done.returncode == 0, done.stderr

    def watch(state, *words):
        given = ("--baseline", baseline, "--schedule", schedule, "--state", folder / state)
        # However busy the machine is, what was halved is told, and what was not is not.
        limits = ("--threshold", "25%", "--budget", "3s", "--timeout", "100")
        done = inside("watch", *given, *words, *limits, "--json")
        return done, json.loads(done.stdout) if done.stdout else {}

    body = codec.read(str(schedule), "schedule").body
    link = int(np.bincount(body.link, minlength=body.network.links).argmax())
    busiest = int(body.network.src[link]), int(body.network.dst[link])
    yield SimpleNamespace(command=command, watch=watch, folder=folder, busiest=busiest)
    command("lab", "down")


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_quiet_twice_then_a_halved_link_is_named_and_planned_around_and_taken_back(made):
    state = made.folder / "state"
    for _ in range(2):
        done, told = made.watch("state")
        assert done.returncode == 0, done.stderr + done.stdout
        assert told["events"] == [] and told["resynthesized"] is False
        before = files(state)
    src, dst = (f"gpu{rank + 1}" for rank in made.busiest)
    made.command("lab", "shape", f"{src} -> {dst} = 50Mbit/s")
    done, told = made.watch("state")
    assert done.returncode == 1, done.stderr
    drift, *rest = told["events"]
    assert (drift["kind"], drift["what"], drift["new"]) == ("drift", f"{src} → {dst}", True)
    assert drift["links"] == [list(made.busiest)]
    assert 0.4 < drift["ratio"] < 0.6
    assert told["findings"][0].startswith(f"{src} → {dst}: bandwidth ")
    assert len(told["findings"]) == 1
    assert told["predicted_now_s"] > 1.05 * told["predicted_baseline_s"]
    assert [event["kind"] for event in rest] == ["schedule"]
    assert told["resynthesized"] and told["predicted_gain"] >= 1.05
    after = files(state)
    assert after["current.json"] != before["current.json"]
    assert after[Path(told["kept_as"]).name] == after["current.json"]
    assert codec.read(str(state / "current.json"), "schedule").body.network.ranks == 4
    again, told = made.watch("state")
    assert again.returncode == 1
    assert [event["new"] for event in told["events"]] == [False]
    assert told["resynthesized"] is False
    made.command("lab", "shape", f"{src} -> {dst} = unlimited")
    done, told = made.watch("state")
    assert done.returncode == 0, done.stdout
    assert [event["what"] for event in told["events"] if event["kind"] == "recovered"] == [f"{src} → {dst}"]
