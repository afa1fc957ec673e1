"""Tasks for ranks that die, are stopped, or go on without the others."""

from launched import rank_tasks

MODULE = "survivors_of_a_test"
TASKS = """
import ctypes, os, queue, signal, sys, time
from pathlib import Path

def exchanges(comm, arguments, progress):
    assert "mpi4py" not in sys.modules
    rank = comm.Get_rank()
    return [progress.exchange(b"%d of %d" % (turn, rank)) for turn in range(3)]

def gathers(comm, arguments, progress):
    return comm.Get_size(), comm.allgather(comm.Get_rank())

def has_been_told(comm, arguments, progress):
    return comm.allgather([os.environ.get(name) for name in arguments["names"]])

def dies(comm, arguments, progress):
    '''Ranks of "dying" end by "how"; the others tell whom they miss, but those of "silent" nothing.'''
    rank, told = comm.Get_rank(), queue.SimpleQueue()
    progress.partial(("here", rank))
    progress.on_lost(told.put)
    comm.Barrier()
    if rank in arguments["dying"]:
        time.sleep(0.3)
        if arguments["how"]:
            os.kill(os.getpid(), arguments["how"])
        os._exit(3)
    lost = [told.get(timeout=900) for _ in arguments["dying"]]
    given = progress.exchange(b"%d" % rank)
    if rank not in arguments.get("silent", ()):
        return rank, sorted(one.rank for one in lost), [one.how for one in lost], given

def waits_for_the_dead(comm, arguments, progress):
    comm.Barrier()
    if comm.Get_rank() == 1:
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    progress.waiting(1, "the second step")
    comm.Barrier()

def fences(comm, arguments, progress):
    '''Rank 1 is stopped, or its agent; rank 0 fences it, and continues it when that is done.'''
    rank, told, split = comm.Get_rank(), queue.SimpleQueue(), Path(os.environ["TMPDIR"]).parent / "split"
    progress.on_lost(told.put)
    pids = comm.allgather((os.getpid(), os.getppid()))
    pid, agent = pids[1]
    comm.Barrier()
    if rank == 1:
        os.kill(agent if arguments["agent"] else pid, signal.SIGSTOP)
        time.sleep(0.5 if not arguments["agent"] else 30)
        split.write_text("rank 1 goes on")
        time.sleep(60)
    if rank == 0:
        time.sleep(0.3)
        progress.fence(1)
    how = told.get(timeout=900).how
    deadline_s = time.monotonic() + 60
    while (left := runs(pid)) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    if rank == 0 and not arguments["agent"]:
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass
        time.sleep(1 if left else 0)
    return how, left, split.exists()

def comes_back(comm, arguments, progress):
    '''Rank 1 dies; its second start fails, and the third is heard of by the others.'''
    mesh, rank = comm.mesh, comm.Get_rank()
    if mesh.start == 1:
        raise ValueError("on purpose, again")
    if mesh.start == 2:
        from probes.base.errors import UsageError
        try:
            progress.exchange(b"what the others have had")
        except UsageError:
            mesh.admitted()
        while set(mesh.met) != {0, 2}:
            time.sleep(0.01)
        for peer in mesh.met:
            mesh.send(peer, "back", mesh.start)
        return None
    comm.Barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    while mesh.known[1].start != 2 or 1 in mesh.lost:
        time.sleep(0.01)
    return rank, mesh.receive(1, "back")

def waits_outside(comm, arguments, progress):
    '''Rank 1 dies, is started again and never let in; the others do not wait for it.'''
    mesh = comm.mesh
    if mesh.start:
        progress.partial(os.getpid())
        time.sleep(600)
    comm.Barrier()
    if comm.Get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    while mesh.known[1].start != 1:
        time.sleep(0.01)
    time.sleep(0.5)
    return comm.Get_rank()

def host_comes_back(comm, arguments, progress):
    '''Ranks 1 and 2 are lost with their host; rank 0 waits until both have been started again.'''
    mesh, rank = comm.mesh, comm.Get_rank()
    if mesh.start:
        mesh.admitted()
        while 0 not in mesh.met:
            time.sleep(0.01)
        mesh.send(0, "back", rank)
        return None
    comm.Barrier()
    Path(arguments["folder"], f"up-{rank}").touch()
    if rank:
        time.sleep(600)
    for peer in (1, 2):
        while not mesh.known[peer].start or peer in mesh.lost:
            time.sleep(0.01)
    return [mesh.receive(peer, "back") for peer in (1, 2)]

def runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False

def refuses(comm, arguments, progress):
    from probes.base.errors import DataError
    if comm.Get_rank() == 1:
        raise DataError("plan.json", ["wrong"])
    time.sleep(60)

def hears_and_fails(comm, arguments, progress):
    def fails(lost):
        raise ValueError(f"on purpose, without {lost.rank}")
    progress.on_lost(fails)
    comm.Barrier()
    if comm.Get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)

def never_ends(comm, arguments, progress):
    progress.waiting((comm.Get_rank() + 1) % comm.Get_size(), "an endless step")
    progress.partial(os.getpid())
    if comm.Get_rank() in arguments["stopped"]:
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(600)

def misses(comm, arguments, progress):
    '''Ranks tell that they are here, and the first to return tells whom it misses.'''
    told = queue.SimpleQueue()
    progress.on_lost(told.put)
    comm.Barrier()
    Path(arguments["folder"], f"up-{comm.Get_rank()}").touch()
    if comm.Get_rank() in arguments.get("dying", ()):
        os.kill(os.getpid(), signal.SIGKILL)
    if comm.Get_rank() in arguments.get("stopped", ()):
        os.kill(os.getpid(), signal.SIGSTOP)
    if comm.Get_rank() in arguments.get("busy", ()):
        # In a library that holds the interpreter.
        ctypes.PyDLL(None).sleep(5)
    lost = [told.get(timeout=900) for _ in range(arguments["count"])]
    return comm.Get_rank(), sorted(one.rank for one in lost), [one.how for one in lost]
"""
# A command that starts them, as another program would.
PROGRAM = """
import json, os, sys
from pathlib import Path
from exec.launcher import session, watchdog
from exec.launcher.run import launch

session._MEMORY = Path(os.environ["TMPDIR"])
task, arguments, options, told = json.loads(sys.argv[1])
watchdog.FAR_SILENCE_S = 3.0
value = launch(f"survivors_of_a_test:{task}", arguments, wires="sockets", timeout_s=900, **options,
               keep=lambda piece: print("piece", piece, flush=True))
with open(told, "w") as file:
    print(json.dumps(value), file=file)
"""


def survivor_tasks(tmp_path, monkeypatch, *, forked=False):
    """Yield a module of these tasks as `rank_tasks` yields one of its own."""
    (tmp_path / f"{MODULE}.py").write_text(TASKS)
    monkeypatch.setattr("exec.launcher.session._MEMORY", tmp_path)
    yield from rank_tasks(tmp_path, monkeypatch, forked=forked)
