"""CUDA, NCCL and NVML fail at each call that ccctl makes: the error is clear, and nothing stays taken."""

import ast
import gc
import re
from pathlib import Path

import pytest
from cuda_tasks import TASKS

from probes.base import UnavailableError

ROOT = Path(__file__).parents[3]
# Calls whose failure is an answer: then a peer's memory or NVLink is not used.
ANSWERS = re.compile(r"nvml|deviceCanAccessPeer|deviceGetByPCIBusId")
# Calls that give back; what they fail to give back stays taken.
RELEASES = {
    "ipcCloseMemHandle": "memory of a peer",
    "eventDestroy": "event of a peer",
    "nvmlShutdown": "NVML",
}
TOLD = r"(?:peers nccl needs .*; .*: \w+Error|(?:device cuda: )?(?:CUDA|NCCL)(?: on GPU 0)?): {} fails"


def held(cuda):
    """Return what rank 0 holds, by its kind."""
    gc.collect()
    return {kind: count for kind, count in cuda.live[0].items() if count}


@pytest.mark.parametrize("task", TASKS)
def test_a_fault_at_each_call_is_told_and_leaves_nothing_taken(task, monkeypatch):
    whole, error = TASKS[task](monkeypatch)
    assert error is None
    assert held(whole) == {}
    sites = dict.fromkeys(whole.calls)
    # A collection after each fault then looks at little more than what the fault left.
    gc.freeze()
    for site in sites:
        # The second call at a place shows whether what the first one took is given back.
        for before in (0, 1):
            broken, error = TASKS[task](monkeypatch, fault=(site, before))
            name = site[0]
            assert broken.failed or before, site
            if not broken.failed or (task.startswith("plan") and ANSWERS.match(name)):
                assert error is None, (site, error)
            else:
                assert isinstance(error, UnavailableError), (site, error)
                assert re.fullmatch(TOLD.format(re.escape(name)), error.message), (site, error.message)
            del error
            kept = {RELEASES[name]: 1} if broken.failed and name in RELEASES else {}
            assert held(broken) == kept, (site, before)
    print(f"{task}: {len(sites)} calls, each fails: 0 leaks, 0 hangs")


# Parts of CuPy, as the source names them.
PARTS = {"runtime", "_runtime", "cuda", "_cuda", "driver", "nccl", "_nccl"}
# Names of ours that look like them.
OURS = {
    "available",
    "connected",
    "NcclIn",
    "NcclOut",
    "cuGetErrorString",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
}


def calls_of_cupy():
    """Yield (file, line, name) of each call of a part of CuPy in the source."""
    paths = [
        *(ROOT / "exec/cuda").rglob("*.py"),
        ROOT / "exec/peers/nccl.py",
        *(ROOT / "probes/live").glob("cuda*.py"),
    ]
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            *parts, name = ast.unparse(node.func).split(".")
            if PARTS & {*parts} and name not in OURS and path.name != "source.py":
                yield path.name, range(node.lineno, node.end_lineno + 1), name


def test_every_call_is_among_those_that_fail(monkeypatch):
    made = {site for task in TASKS.values() for site in task(monkeypatch)[0].calls}
    lines = {tuple(site.split(":")) for _, site in made}
    every = list(calls_of_cupy())
    missed = [call for call in every if not {(call[0], str(line)) for line in call[1]} & lines]
    print(f"{len(every)} calls in the source, {len(made)} made")
    assert missed == []
