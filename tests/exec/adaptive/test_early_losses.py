"""A job that adapts goes on when a rank is lost at any moment from its start on."""

import random
import sys

import pytest
from limits import HANG_S
from survivors import survivor_tasks

from exec.adaptive.iterations import Iterations
from exec.launcher.run import World, run_ranks
from synth.networks.families import family

RANKS = 3
# Functions in which a rank dies once, before call number n, by module.
MOMENTS = {
    "when it first measures": ("exec.adaptive.links_now", "measured_links", 0),
    "when it measures again": ("exec.adaptive.links_now", "measured_links", 2),
    "when it has measured": ("exec.adaptive.session", "Backend", 0),
    "when it sets up": ("exec.adaptive.backend", "unpacked", 0),
    "when it has set up": ("exec.adaptive.iterations", "_Data", 0),
}
DYING = """
import importlib, os, signal
from exec.adaptive import iterations

def task(comm, arguments, progress):
    module = importlib.import_module({module!r})
    kept, calls = getattr(module, {name!r}), []
    def dies(*given, **named):
        if len(calls) == {number} and not os.path.exists({mark!r}):
            open({mark!r}, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        calls.append(1)
        return kept(*given, **named)
    if comm.Get_rank() == {rank}:
        setattr(module, {name!r}, dies)
    return iterations.iterations_task(comm, arguments, progress)
"""
RANDOM = """
import os, signal, sys, threading
if "exec.launcher.worker" in sys.orig_argv and os.environ.get("CCCTL_RANK") == {rank!r}:
    if not os.path.exists({mark!r}):
        open({mark!r}, "w").close()
        threading.Timer({after_s}, os.kill, (os.getpid(), signal.SIGKILL)).start()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, request):
    forked = not request.node.get_closest_marker("new_python")
    for tasks in survivor_tasks(tmp_path, monkeypatch, forked=forked):
        yield tasks.parent


def iterated(network=None, rejoin=0, task="dying:task"):
    return run_ranks(
        task,
        Iterations(30, 1000, network=network, rejoin=rejoin > 0),
        World(RANKS),
        timeout_s=HANG_S,
        wires="sockets",
        survive=True,
        rejoin=rejoin,
        path=sys.path,
    )


# The coordinator and another rank by turns.
@pytest.mark.parametrize(
    ("moment", "rank"),
    [
        # `test_session` kills ranks while the others set up and later, in less time.
        pytest.param(moment, at % 2, marks=[pytest.mark.long] * (at > 0))
        for at, moment in enumerate(MOMENTS)
    ],
)
def test_the_others_go_on_from_the_first_moment_on(moment, rank, folder):
    module, name, number = MOMENTS[moment]
    mark = folder / "died"
    text = DYING.format(rank=rank, module=module, name=name, number=number, mark=str(mark))
    (folder / "dying.py").write_text(text)
    report = iterated()
    assert mark.exists() and report.wrong == 0
    assert set(report.lost) == {rank} and set(report.members) == set(range(RANKS)) - {rank}
    assert {len(one.done_s) for one in report.times} == {30}


@pytest.mark.long
@pytest.mark.new_python
@pytest.mark.parametrize("seed", range(6))
def test_at_moments_drawn_by_chance_with_and_without_starting_ranks_again(seed, folder):
    chance = random.Random(seed)
    mark, rank = folder / "died", chance.randrange(RANKS)
    text = RANDOM.format(rank=str(rank), mark=str(mark), after_s=chance.uniform(0.0, 1.5))
    (folder / "sitecustomize.py").write_text(text)
    report = iterated(rejoin=seed % 2, task="exec.adaptive.iterations:iterations_task")
    assert mark.exists() and report.wrong == 0 and set(report.lost) <= {rank}


def test_with_a_profile_they_do_so_too(folder):
    mark = folder / "died"
    text = DYING.format(rank=2, module="exec.adaptive.session", name="Backend", number=0, mark=str(mark))
    (folder / "dying.py").write_text(text)
    report = iterated(family(f"ring:{RANKS}", [1e-5], [1e9]))
    assert mark.exists() and report.wrong == 0 and set(report.lost) == {2}
