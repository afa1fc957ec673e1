"""A rank that is lost in the middle of a collective is named, and so is the step that waits for it."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from limits import HANG_S
from sample_schedules import ring_all_reduce
from warm_commands import warm_commands

from exec.launcher.run import World, run_ranks
from exec.launcher.starters import mpirun
from exec.mpi import interpreter
from exec.mpi.encode import MemoryAddresses, Tiling, tables_of
from exec.mpi.stalls import Neighbours, waits_for
from exec.mpi.traffic import traffic
from exec.program.layout import Layout
from exec.program.move import moves
from probes.base.errors import LostRankError
from synth.compiler.lowering import lower

TASK = """
import os
import numpy as np
from exec.program.layout import Layout
from exec.mpi.plan import MpiPlan

def loses_a_rank(comm, arguments, progress):
    program, lost, number, runs, told = arguments
    if comm.Get_rank() == 0:
        told.write_text(os.environ["CCCTL_SCRATCH"])
    send = np.ones(200_000, "float32")
    plan = MpiPlan(Layout(program, send.size), comm, send, np.empty_like(send), "sum", progress)
    progress.update(0, 1, "running")
    for run in range(10**6):
        if comm.Get_rank() == lost and run == runs:
            os.kill(os.getpid(), number)
        plan.run()
"""


@pytest.mark.mpi
@pytest.mark.parametrize(("number", "lost", "runs"), [(signal.SIGKILL, 2, 300), (signal.SIGSTOP, 0, 40)])
def test_a_rank_lost_in_a_collective_is_named_with_the_step_that_waits(number, lost, runs, tmp_path):
    (tmp_path / "loses_ranks.py").write_text(TASK)
    with pytest.raises(LostRankError) as caught:
        arguments = (lower(ring_all_reduce(3)), lost, int(number), runs, tmp_path / "scratch")
        run_ranks("loses_ranks:loses_a_rank", arguments, World(3), timeout_s=HANG_S, path=[str(tmp_path)])
    first, *others = caught.value.message.splitlines()
    assert first.startswith(f"rank {lost} (host ") and signal.Signals(number).name in first
    after = (lost + 1) % 3
    where = rf"waited for rank {lost}: rank {after} threadblock \d+ step \d+ \(\w+\)"
    if number == signal.SIGKILL:
        # mpirun then kills the others within a second; who has no core until then cannot say that it waits.
        where = f"({where}|was at: running)"
    assert any(re.match(f"rank {after} {where}", line) for line in others), others
    scratch = Path((tmp_path / "scratch").read_text())
    assert scratch.name.startswith("ccctl-") and not scratch.exists()


STARTS = """
import sys
from pathlib import Path
from sample_schedules import ring_all_reduce
from exec.launcher.run import World, run_ranks
from synth.compiler.lowering import lower

arguments = (lower(ring_all_reduce(3)), 0, int(sys.argv[1]), 40, Path(sys.argv[2]))
run_ranks("loses_ranks:loses_a_rank", arguments, World())
"""


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("number", "how"),
    [
        (signal.SIGKILL, "is gone"),
        pytest.param(signal.SIGSTOP, "was stopped", marks=pytest.mark.long),
    ],
)
def test_without_a_command_that_watches_a_rank_that_is_lost_ends_the_others(number, how, tmp_path):
    (tmp_path / "loses_ranks.py").write_text(TASK)
    helpers = Path(__file__).parents[2] / "helpers"
    environment = mpirun.variables(3, str(tmp_path), str(tmp_path)) | {
        "CCCTL_SCRATCH": str(tmp_path),
        "PYTHONPATH": f"{tmp_path}:{helpers}:{Path.cwd()}",
    }
    asked = warm_commands().program("-c", STARTS, str(int(number)), str(tmp_path / "told"))
    command = mpirun.command(mpirun.find(), 3, (), asked)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode != 0
    # mpirun itself ends all ranks, and says so, as soon as it sees that one was killed.
    assert how in done.stderr or "signal 9" in done.stderr, done.stderr


def test_a_rank_that_has_ended_is_lost_even_before_its_parent_waits_for_it():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    try:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert Neighbours({1: ended.pid}).lost() == f"rank 1 (pid {ended.pid}) is gone"
        assert Neighbours({1: os.getpid()}).lost() == ""
    finally:
        ended.wait()


@pytest.mark.parametrize("flag", [0, 8])
def test_the_peer_whose_message_is_missing_is_found(flag):
    program = lower(ring_all_reduce(3))
    layout = Layout(program, 12)
    every = moves(layout)
    messages = traffic(
        layout, every, in_place=False, readable=lambda *_: False, wired=lambda connection: False
    )
    rows = {number: row for row, number in enumerate(sorted(messages.per_tile))}
    words = np.zeros(6, np.int64)
    address = words.ctypes.data
    tables = tables_of(
        layout,
        1,
        every,
        messages,
        Tiling(1, 12),
        rows,
        MemoryAddresses((0, 0, 0), lambda rank, buffer: 0, 4),
        lambda connection: False,
    )
    ends = (address, address + 8, address + 16, 16, 2)
    links = np.array([[*ends, messages.per_tile[number], 0, flag, 0] for number in rows])
    header = np.array([0, 1, 12, 4, 0, 1, 0])
    receives = next(at for at, row in enumerate(tables.steps) if row[interpreter.IN] >= 0)
    tables.blocks[0, interpreter.AT_STEP] = receives
    peer, text = waits_for(program, tables, (header, tables.blocks, tables.steps, None, None, links))
    assert peer == 0
    assert re.match(rf"rank 1 threadblock \d step {receives} \(", text)
    # The counter of messages written, or the flags of both slots: now all are there.
    words[[3, 5] if flag else [0]] = 100
    peer, _ = waits_for(program, tables, (header, tables.blocks, tables.steps, None, None, links))
    assert peer != 0
