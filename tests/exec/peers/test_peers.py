"""The peers: their names, the library's algorithms, and that what they compute is right."""

import importlib.util
import json

import pytest
from joined import run_over_mpi

from exec.peers.mpi_t import choices_of
from exec.peers.registry import parse_peers
from probes.base.errors import UsageError

WORKER = """
import json, sys
from exec.benchmark.runner import BenchRequest, Contender, bench_all_task
from exec.peers.mpi import algorithm_names
from probes.base.errors import UnavailableError
from probes.base.progress import SILENT
from sample_schedules import random_schedule
from synth.compiler.lowering import lower

found = {}
for kind in sys.argv[5].split(","):
    program = lower(random_schedule(kind, comm.Get_size(), 2, 1))
    for in_place in (False, True)[: 1 + program.in_place]:
        ours = (Contender(program.name, program),)
        request = BenchRequest(ours, (1, 1000), "float32", "sum", 0, 1, (in_place,), (sys.argv[4],))
        try:
            rows = bench_all_task(comm, (request,), SILENT).rows
        except UnavailableError as error:
            found[f"{kind} {in_place}"] = error.message
        else:
            found[f"{kind} {in_place}"] = [{n: m.wrong for n, m in row.peers.items()} for row in rows]
if rank == 0:
    print(json.dumps(found))
"""


def found_by(folder, peers, kinds):
    """For each collective and placement the wrong elements of every peer at two sizes, or why not."""
    first, *_ = run_over_mpi(folder, 3, WORKER, peers, ",".join(kinds))
    return json.loads(first)


def test_names_of_peers():
    assert parse_peers(None) == ()
    assert parse_peers("mpi, gloo,mpi") == ("mpi", "gloo")
    assert parse_peers("mpi:ring,mpi:4,mpi:all,nccl") == ("mpi:ring", "mpi:4", "mpi:all", "nccl")
    for wrong in ("rccl", "mpi:", "", "gloo:ring", "nccl:ring"):
        with pytest.raises(UsageError, match="peers"):
            parse_peers(wrong or ",")


def test_algorithms_are_found_in_the_words_of_a_variable():
    words = "Variable to select it\nauto - chosen\nnb    - nonblocking\nring  - Force ring\n"
    assert choices_of(words) == {"auto": 0, "nb": 1, "ring": 2}


@pytest.fixture(scope="module")
def algorithms(tmp_path_factory):
    """Return the results of all algorithms of the library, by one start of ranks."""
    kinds = ("all_reduce", "all_to_all", "all_to_next", "all_gather")
    return found_by(tmp_path_factory.mktemp("algorithms"), "mpi:all", kinds)


@pytest.mark.mpi
def test_every_algorithm_of_the_library_is_run_and_checked(algorithms):
    for name in ("all_reduce False", "all_reduce True", "all_to_all False"):
        for row in algorithms[name]:
            assert len(row) >= 3
            assert all(peer.startswith("mpi:") for peer in row)
            assert set(row.values()) == {0}, name
    assert "no algorithms of all_to_next" in algorithms["all_to_next False"]


@pytest.mark.mpi
def test_an_algorithm_that_serves_two_ranks_only_is_left_out(algorithms):
    # Open MPI's own "sparbit" is wrong in place; that it is seen is what the check is for.
    for row in algorithms["all_gather False"]:
        assert "mpi:two_proc" not in row
        assert set(row.values()) == {0}


@pytest.mark.mpi
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_gloo_is_right_where_it_has_the_collective(tmp_path):
    kinds = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "gather", "all_to_next")
    for name, rows in found_by(tmp_path, "gloo", kinds).items():
        assert rows == [{"gloo": 0}, {"gloo": 0}], name
