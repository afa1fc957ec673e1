"""A rank that corrupts data silently is named, among ranks that run a program twice."""

import pickle

import pytest
from joined import run_joined
from sample_schedules import ring_all_reduce

from exec.benchmark.integrity import IntegrityRequest
from synth.compiler.lowering import lower

# The rank in argv[5] adds an operand with a flipped bit in one step of its program.
WORKER = """
import pickle
from exec.benchmark import integrity
from exec.mpi import interpreter
from exec.mpi.plan import MpiPlan
from probes.base import SILENT

class Faulty(MpiPlan):
    def __init__(self, layout, comm, send, recv, **options):
        super().__init__(layout, comm, send, recv, **options)
        self.operand = send.copy()

    def run(self):
        if rank == int(sys.argv[5]):
            self.operand[:] = self._send
            self.operand.view("uint32")[:] ^= 1 << 12
            [step] = (row for row in self._tables.steps if row[interpreter.OP] == interpreter.RRS)
            piece = self._tables.pieces[step[interpreter.PIECE_FIRST]]
            piece[interpreter.SRC] += self.operand.ctypes.data - self._send.ctypes.data
            super().run()
            piece[interpreter.SRC] -= self.operand.ctypes.data - self._send.ctypes.data
        else:
            super().run()

integrity.MpiPlan = Faulty
with open(sys.argv[4], "rb") as stream:
    request = pickle.load(stream)
found = integrity.integrity_task(comm, request, SILENT)
if found is not None:
    print(found.runs, found.unlike, found.steps, [(one.kind, one.rank, one.op) for one in found.corruptions])
"""


@pytest.mark.parametrize("faulty", [-1, 0, 2])
def test_the_rank_that_corrupts_data_is_named(tmp_path, faulty):
    program = lower(ring_all_reduce(3, 1))
    (tmp_path / "request").write_bytes(pickle.dumps(IntegrityRequest(program, 12_000)))
    said = run_joined(tmp_path, 3, WORKER, str(tmp_path / "request"), str(faulty))
    found = [] if faulty < 0 else [("rank", faulty, "rrs")]
    # Both runs have the same fault, so their bits are the same, too.
    assert said == [f"('ccctl',) {{}} {program.steps} {found}\n", "", ""]
