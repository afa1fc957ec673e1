"""Tasks for ranks that tests start, and what may not be left of them."""

import os
import sys
import time
from pathlib import Path

# Written out as a module, for the ranks to import; {0} and the like never occur, so it stays plain text.
TASKS = """
import os, signal, time

def total(comm, arguments, progress):
    progress.update(1, 2, "adding")
    return comm.allreduce(comm.Get_rank()) + arguments["plus"]

def signalled(comm, arguments, progress):
    progress.update(0, 1, "the first step")
    progress.waiting(arguments["rank"], "the second step")
    if comm.Get_rank() == arguments["rank"]:
        time.sleep(0.7)
        os.kill(os.getpid(), arguments["signal"])
    comm.Barrier()

def asked_to_end(comm, arguments, progress):
    if comm.Get_rank() == 1:
        os.kill(os.getpid(), arguments["signal"])
    return comm.allreduce(comm.Get_rank())

def leaves(comm, arguments, progress):
    comm.Barrier()
    if comm.Get_rank() == 1:
        os._exit(3)
    comm.Barrier()

def refuses(comm, arguments, progress):
    from probes.base.errors import DataError
    if comm.Get_rank() == 1:
        raise DataError("plan.json", ["first wrong", "second wrong"], hint="make it again")
    comm.Barrier()

def refuses_with_what_cannot_be_sent(comm, arguments, progress):
    from probes.base.errors import DataError
    class Local(DataError):
        pass
    if comm.Get_rank() == 1:
        error = (Local if arguments["local"] else DataError)("plan.json", ["wrong"])
        error.lock = lambda: None
        raise error
    comm.Barrier()

def fails_then_one_dies(comm, arguments, progress):
    if comm.Get_rank() == 1:
        raise ValueError("a bug on purpose")
    if comm.Get_rank() == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(600)

def fails(comm, arguments, progress):
    if comm.Get_rank() == 1:
        raise ValueError("a bug on purpose")
    comm.Barrier()

def overfills(comm, arguments, progress):
    if comm.Get_rank() == 1:
        raise MemoryError("Unable to allocate 1.00 TiB")
    comm.Barrier()

def gives_away_last(comm, arguments, progress):
    progress.partial(("piece", comm.Get_rank()))

def never_ends(comm, arguments, progress):
    progress.waiting((comm.Get_rank() + 1) % comm.Get_size(), "an endless step")
    time.sleep(600)

def gives_away(comm, arguments, progress):
    progress.partial(("piece", comm.Get_rank()))
    time.sleep(1)
    if comm.Get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    comm.Barrier()

def gives_away_and_waits(comm, arguments, progress):
    progress.partial(comm.Get_rank())
    comm.Barrier()
    if comm.Get_rank() == 0:
        time.sleep(0.2)
        progress.update(1, 2)
        print("waiting", flush=True)
    comm.Barrier()
    if comm.Get_rank() == 0:
        comm.recv(source=1)
    time.sleep(600)

def stalls(comm, arguments, progress):
    rank = comm.Get_rank()
    progress.waiting(*{0: (2, "from 2"), 1: (2, "to 2"), 2: (0, "to 0")}.get(rank, (-1, "all")))
    time.sleep(600)

def shows_its_environment(comm, arguments, progress):
    return os.stat("/proc/self/environ").st_mode & 0o777

def makes_its_folder_again(comm, arguments, progress):
    folder = os.environ["TMPDIR"]
    while comm.Get_rank() == 1:
        os.makedirs(folder, exist_ok=True)
        time.sleep(0.001)
    time.sleep(600)

def says_nothing(comm, arguments, progress):
    time.sleep(600)

def as_main():
    import sys
    from ccctl.launching import World, run_ranks
    from ccctl.rescue import rescuing
    ranks, timeout_s = [*map(int, sys.argv[2:]), 2, 60][:2] if len(sys.argv) > 2 else (2, 60)
    kept = []
    def rescue(why):
        # mpirun, once told to end, passes nothing on that the ranks print.
        with open(os.environ["TMPDIR"] + "/kept", "w") as file:
            print(sorted(kept), why, file=file)
        return ""
    with rescuing(rescue):
        task = "ranks_of_a_test:" + sys.argv[1]
        print(run_ranks(task, {"plus": 0}, World(ranks), label="test", timeout_s=timeout_s, keep=kept.append))

if __name__ == "__main__":
    as_main()
"""
MODULE = "ranks_of_a_test"


def rank_tasks(tmp_path, monkeypatch, *, forked=False):
    """Yield the module of tasks, where ranks can import it; afterwards nothing of a run may be left.

    Ranks that are ``forked`` (`warm_commands`) find it by ``path=sys.path``; others start a new Python each.
    """
    (tmp_path / f"{MODULE}.py").write_text(TASKS)
    if forked:
        monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    else:
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    mark = f"CCCTL_TEST_RUN={tmp_path}"
    monkeypatch.setenv(*mark.split("="))
    yield tmp_path / f"{MODULE}.py"
    assert left_processes(mark) == []
    assert list(tmp_path.glob("ccctl-*")) == []


def fake_mpirun(tmp_path, monkeypatch, does, version="mpirun (Open MPI) 5.0"):
    """Put an mpirun that ``does`` this beside the Python that starts ranks."""
    fake = tmp_path / "mpirun"
    fake.write_text(f'#!/bin/sh\nif [ "$1" = --version ]; then echo "{version}"; exit; fi\n{does}\n')
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))


def left_processes(mark):
    """Processes, apart from this one, that carry the mark of a test in their environment.

    A process may start another and end while the processes are listed, so only two empty lists count.
    """
    deadline_s, empty = time.monotonic() + 60, 0
    while True:
        found = list(marked(mark))
        empty = 0 if found else empty + 1
        if empty == 2 or time.monotonic() > deadline_s:
            return found
        time.sleep(0.1)


def marked(mark):
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes()
        except OSError:
            continue
        if mark.encode() in environment and int(folder.name) != os.getpid():
            yield int(folder.name)
