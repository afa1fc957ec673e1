"""`ccctl accept` as an operator runs it: a verdict on this machine, interruptions, refusals."""

import contextlib
import json
import random
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

import pytest
from limits import HANG_S

CCCTL = [sys.executable, "-P", "-m", "ccctl"]
WORDS = ("accept", "-n", "2", "--size", "64K", "--size", "256K,64K")
FILES = {
    "topology.json",
    "health.json",
    "profile.json",
    "samples.json",
    "report.json",
    "selection.json",
    "certificate.json",
    "index.html",
    "junit.xml",
    "ctrf.json",
    "drain.sh",
    "conditions.sh",
    "accept.prom",
}


@dataclass(frozen=True)
class Resumed:
    """An acceptance of two ranks of this host, interrupted after its first stage, and then resumed."""

    folder: Path
    interrupted: subprocess.CompletedProcess
    body: dict
    health: bytes
    again: subprocess.CompletedProcess
    done: subprocess.CompletedProcess


@pytest.fixture(scope="module")
def accepted(tmp_path_factory, _warm_commands):
    folder = tmp_path_factory.mktemp("accept")
    process = subprocess.Popen(
        [*CCCTL, *WORDS, "-o", "out"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline_s = time.monotonic() + HANG_S
    certificate = folder / "out/certificate.json"
    # The first stage is over as soon as the certificate is there.
    while not certificate.exists() and process.poll() is None and time.monotonic() < deadline_s:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=HANG_S)
    interrupted = subprocess.CompletedProcess(process.args, process.returncode, "", said)
    body = json.loads(certificate.read_text())["body"]
    health = (folder / "out/health.json").read_bytes()
    again = _warm_commands.run([*WORDS, "-o", "out"], "", folder, HANG_S)
    done = _warm_commands.run([*WORDS, "-o", "out", "--resume", "--json"], "", folder, HANG_S)
    return Resumed(folder, interrupted, body, health, again, done)


STATUS = {"accepted": 0, "accepted with remarks": 0, "refused": 1, "undecided": 75}


@pytest.mark.mpi
def test_two_ranks_of_this_host_get_a_verdict_and_all_files(accepted):
    folder, done = accepted.folder, accepted.done
    told = json.loads(done.stdout)
    # The load of this machine may decide which one it is.
    assert done.returncode == STATUS[told["verdict"]], done.stderr
    assert {path.name for path in (folder / "out").iterdir()} >= FILES
    body = json.loads((folder / "out/certificate.json").read_text())["body"]
    assert [(stage["name"], stage["done"]) for stage in body["stages"]] == [
        ("hosts", True),
        ("links", True),
        ("whole", True),
    ]
    assert {row["collective"] for row in body["whole"]} == {"all_reduce", "all_to_all"}
    assert {row["size_bytes"] for row in body["whole"]} == {64 << 10, 256 << 10}
    assert body["size_bytes"] == 256 << 10
    assert all(row["wrong"] == 0 and row["busbw_gbs"] > 0 for row in body["whole"])
    assert ET.fromstring((folder / "out/junit.xml").read_text()).tag in ("testsuite", "testsuites")


@pytest.mark.mpi
def test_the_certificate_is_computed_again(accepted, run_ccctl):
    folder = accepted.folder
    done = run_ccctl("verify", folder / "out/certificate.json")
    assert done.returncode == 0, done.stdout
    profile = folder / "out/profile.json"
    whole = profile.read_bytes()
    profile.write_bytes(whole.replace(b"Open MPI", b"open MPI", 1) + b" ")
    assert run_ccctl("verify", folder / "out/certificate.json").returncode == 1
    profile.write_bytes(whole)


@pytest.mark.mpi
def test_an_interrupted_acceptance_goes_on_and_measures_nothing_twice(accepted):
    assert accepted.interrupted.returncode in (130, -signal.SIGINT), accepted.interrupted.stderr
    assert accepted.body["verdict"] == "undecided"
    assert accepted.body["stages"][0]["done"]
    assert (accepted.folder / "out/health.json").read_bytes() == accepted.health
    assert accepted.again.returncode == 2
    assert "--resume" in accepted.again.stderr


# Neither load nor chance changes this verdict: the machine that was bought has GPUs.
BOUGHT = ("accept", "-n", "3", "--size", "64K", "--spec", "dgx-h100/8x400", "-q", "-o")
INTERRUPTIONS, SEED = 10, 36


def verdict_in(folder):
    """The verdict of an acceptance that has ended, and the faults of hosts; those of links vary with load."""
    body = json.loads((folder / "certificate.json").read_text())["body"]
    assert all(stage["done"] for stage in body["stages"])
    return body["verdict"], [one["part"] for one in body["culprits"] if one["kind"] == "gpus_missing"]


def links_in(folder):
    """The measured links so far: {(source, destination): seconds per byte}."""
    if not (folder / "profile.json").exists():
        return {}
    links = json.loads((folder / "profile.json").read_text())["body"]["links"]
    ends = zip(links["src"], links["dst"], strict=True)
    return dict(zip(ends, links["beta_s_per_byte"], strict=True))


@pytest.mark.long
@pytest.mark.mpi
def test_after_ten_interruptions_at_random_the_verdict_is_the_same_and_nothing_is_lost(tmp_path):
    chance = random.Random(SEED)
    began_s = time.monotonic()
    whole = subprocess.run([*CCCTL, *BOUGHT, "whole"], cwd=tmp_path, capture_output=True, timeout=HANG_S)
    took_s = time.monotonic() - began_s
    assert whole.returncode == 1, whole.stderr
    expected = verdict_in(tmp_path / "whole")
    interrupted, ended = 0, []
    while interrupted < INTERRUPTIONS or not ended:
        out = tmp_path / f"out{len(ended)}"
        known = (out / "certificate.json").exists()
        before = links_in(out) if known else {}
        command = [*CCCTL, *BOUGHT, out.name, *(["--resume"] if known else [])]
        pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "start_new_session": True}
        process = subprocess.Popen(command, cwd=tmp_path, text=True, **pipes)
        if interrupted < INTERRUPTIONS:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(chance.uniform(0, took_s / 2))
            if process.poll() is None:
                process.send_signal(chance.choice([signal.SIGINT, signal.SIGTERM]))
                interrupted += 1
        _, said = process.communicate(timeout=HANG_S)
        if process.returncode == 1 and (out / "certificate.json").exists():
            ended.append(verdict_in(out))
        elif process.returncode == 1:
            # Python itself ends so if it is interrupted before it runs the command.
            assert "KeyboardInterrupt" in said, said
        else:
            assert process.returncode in (130, 143, -signal.SIGINT, -signal.SIGTERM), said
        links = links_in(out)
        assert {pair: links.get(pair) for pair in before} == before
    assert all(one == expected for one in ended)


@pytest.mark.long
@pytest.mark.mpi
def test_what_changed_since_an_earlier_acceptance_is_said(accepted, tmp_path, run_ccctl):
    folder = accepted.folder
    done = subprocess.run(
        [*CCCTL, *WORDS, "--since", folder / "out"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert done.returncode in (0, 1), done.stderr
    # Without -o nothing stays.
    assert list(tmp_path.iterdir()) == []


def test_inside_mpirun_it_is_refused(run_ccctl):
    done = run_ccctl("accept", "-n", "2", OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_SIZE="2")
    assert done.returncode == 2
    assert "outside mpirun" in done.stderr
