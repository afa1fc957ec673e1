"""Hosts of a lab come and go: that of rank 0 is cut off, and one joins that did not answer at the start."""

import json
import sys
import time

import pytest
from lab_traffic import sample_lab, standing

from exec.lab import lifecycle
from exec.lab.run import started

pytestmark = [pytest.mark.netns, pytest.mark.long]

PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
from exec import launch
from exec.launcher import restarts

if __name__ == "__main__":
    how = json.loads(sys.argv[2])
    # An address that does not answer is tried again soon.
    restarts._MOST_S = 1.0
    try:
        found = launch("job_of_hosts:job", sys.argv[1], wires="sockets", survive=True, timeout_s=900, **how)
    except Exception as error:  # The test looks at what has ended the run.
        found = type(error).__name__, str(error)
    open(sys.argv[1] + "/found", "w").write(json.dumps(found))
"""

# Each rank goes on until the membership has been another one for some requests.
JOB = """
import time
from pathlib import Path
import numpy as np
from exec.adaptive.coordinator import WaitPolicy
from exec.adaptive.session import Session

COUNT = 10_007

def data(step, of):
    return np.random.default_rng([step, of]).integers(-1000, 1000, COUNT).astype(np.float32)

def job(comm, folder, progress):
    session = Session(comm, fence=progress.fence, replan_s=0.5, policy=WaitPolicy(relays=False, silent_s=2.0))
    session.setup(COUNT)
    step, told = 0, []
    while len(told) < 5 or told[-5:] != [told[-1]] * 5 or (not comm.mesh.start and told[-1] == told[0]):
        admission = session.admit()
        if admission.joined:
            mine = np.full(COUNT, step * (session.rank == 0), np.float32)
            step = int(session.all_reduce(mine).wait(300)[0])
        work = session.all_reduce(data(step, session.rank))
        assert (work.wait(300) == np.sum([data(step, of) for of in work.members], axis=0)).all(), step
        told.append(work.members)
        step += 1
        if step == 5 and session.rank == session.coordinator:
            Path(folder, "runs").touch()
        time.sleep(0.02)
    found = session.members, sorted(session.lost), session.coordinator
    session.close()
    return found
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """Four hosts, and a folder with what their commands need."""
    with standing(sample_lab(4, rate_mbit=100), tmp_path_factory.mktemp("lab")) as found:
        yield found


def told(lab, tmp_path, command_on, cable, *, connected, **how):
    """Return the result of a run started on one host while the cable of another changes."""
    made, folder = lab
    (tmp_path / "job_of_hosts.py").write_text(JOB)
    command = [sys.executable, "-P", "-c", PROGRAM, str(tmp_path), json.dumps(how)]
    try:
        lifecycle.set_cable(made, cable, connected=not connected)
        with started(made, command_on, command, folder) as process:
            deadline_s = time.monotonic() + 200
            while not (tmp_path / "runs").exists():
                assert time.monotonic() < deadline_s and process.poll() is None
                time.sleep(0.05)
            lifecycle.set_cable(made, cable, connected=connected)
            process.wait(300)
    finally:
        lifecycle.set_cable(made, cable, connected=True)
    return json.loads((tmp_path / "found").read_text())


def test_another_rank_takes_over_when_the_host_of_rank_0_is_cut_off(lab, tmp_path):
    assert told(lab, tmp_path, "d", "a", connected=False, hosts="a,b,c") == [[1, 2], [0], 1]


def test_the_run_ends_clearly_when_the_host_is_cut_off_where_it_was_started(lab, tmp_path):
    kind, said = told(lab, tmp_path, "a", "a", connected=False, hosts="a,b,c")
    assert kind == "LostRankError"
    assert "1 of 3 ranks are left, which cannot go on" in said


def test_a_host_that_did_not_answer_at_the_start_joins(lab, tmp_path):
    assert told(lab, tmp_path, "a", "c", connected=True, hosts="a,b", spare="c") == [[0, 1, 2], [], 0]
