"""A function called on every rank from Python, without the command line."""

import doctest
import functools
import subprocess
import sys

import pytest
from limits import HANG_S

import exec.launcher.run
from exec.launcher.run import launch
from probes.base.errors import UsageError

# A program that starts ranks: its own folder is where it finds its modules, as in a notebook.
WORK = """
from dataclasses import dataclass

@dataclass(frozen=True)
class Factor:
    by: int

class Holder:
    @staticmethod
    def total(comm, factor, progress):
        progress.update(1, 2, "adding")
        progress.partial(comm.Get_rank())
        print("a rank prints")
        return Factor(factor.by * comm.allreduce(comm.Get_rank() + 1))
"""
PROGRAM = """
import sys, threading
sys.path.insert(0, {folder!r})
from work import Factor, Holder
from exec.launcher.run import launch

kept, seen, values = [], [], []

class Progress:
    def update(self, done, total, text=""):
        seen.append(done / total)

def call():
    told = {{"keep": kept.append, "progress": Progress()}}
    values.append(launch(Holder.total, Factor(10), ranks=2, timeout_s=900, **told))

thread = threading.Thread(target=call)
thread.start()
thread.join()
print(values, sorted(kept), seen[-1])
"""


@pytest.mark.mpi
def test_a_program_calls_its_own_function_on_ranks_from_a_thread_with_closed_streams(tmp_path):
    (tmp_path / "work.py").write_text(WORK)
    (tmp_path / "elsewhere").mkdir()
    script = tmp_path / "elsewhere" / "program.py"
    script.write_text(PROGRAM.format(folder=str(tmp_path)))
    command = ["sh", "-c", 'exec "$0" -P "$1" <&- 2>&-', sys.executable, str(script)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=HANG_S)
    assert done.stdout == "[Factor(by=30)] [0, 1] 1.0\n"
    assert done.returncode == 0


@pytest.mark.mpi
def test_the_example_of_the_docstring_is_right():
    finder = doctest.DocTestFinder(recurse=False)
    (example,) = finder.find(launch, "launch", module=exec.launcher.run)
    assert doctest.DocTestRunner().run(example).failed == 0
    assert len(example.examples) == 4


def defined_in_main(comm, arguments, progress):
    pass


defined_in_main.__module__ = "__main__"


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda comm, arguments, progress: None, "ranks cannot import '<lambda>'"),
        (functools.partial(print), "ranks cannot import functools.partial"),
        (defined_in_main, "ranks cannot import 'defined_in_main', which __main__ defines"),
        ("no_name", "expected a name like 'module:function', found 'no_name'"),
        ("os:system;x", "expected a name like"),
    ],
)
def test_a_function_that_ranks_cannot_import_is_refused(function, said):
    with pytest.raises(UsageError) as caught:
        launch(function, ranks=2)
    assert caught.value.message.startswith("function: ")
    assert said in caught.value.message


def test_arguments_that_cannot_be_sent_are_refused_before_a_rank_starts():
    with pytest.raises(UsageError, match=r"arguments: they cannot be sent to the ranks: builtins.function"):
        launch("exec.launcher.selftest:hello", lambda: None, ranks=2)


def test_without_a_world_the_message_names_the_arguments():
    with pytest.raises(UsageError) as caught:
        launch("exec.launcher.selftest:hello")
    assert caught.value.hint == "Give ranks=4, or hosts='gpu[01-08]:4', or run inside mpirun."
