"""Runs ccctl, ranks and scripts in processes that a server forks, which has imported their modules.

Imports are most of the time of a short command, and of a rank. The server only imports modules, loads loops
and reads the options of all commands. Each forked process has its own arguments, folder and streams. It ends
as Python does, but modules are not cleared, which would take longer than a short command.
"""

import atexit
import contextlib
import functools
import gc
import marshal
import os
import pkgutil
import runpy
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from types import ModuleType

# Some tests replace ``sys.executable`` for a while.
_PYTHON = sys.executable
_MOST_BYTES = 1 << 20
_CLIENT = Path(__file__).with_name("warm_client.py")
# The server does not search this folder for modules, as the commands that it becomes do not.
namespaces = runpy.run_path(str(_CLIENT))["namespaces"]
# Modules of GPUs and frameworks are left to the tests that need them.
_LEFT_OUT = ("exec.cuda.", "exec.published.", "exec.training.", "ccctl.torch.")
# Packages that commands import where they need them.
_OF_OTHERS = ("psutil", "pulp", "pynvml", "scipy.optimize", "scipy.sparse")
_READ_BY_IMPORTS = ("PYTHON", "NUMBA", "LC_", "LANG", "XDG_CACHE_HOME", "OMP_", "OPENBLAS_", "LD_")
_PACKAGES = ("ccctl", "exec", "probes", "synth")


class WarmCommands:
    """The server that forks commands and ranks; it starts with the first request."""

    def __init__(self):
        self._environment = _compared(os.environ)
        # A test that sets TMPDIR may be the first that needs the process.
        self._folder = tempfile.gettempdir()
        self._server = None
        self._starting = threading.Lock()

    def run(self, words, text, folder, timeout, script=None, variables=None):
        """Run ``ccctl WORDS`` in ``folder`` as ``subprocess.run`` does, with ``text`` on its standard input.

        If ``script`` is given, run ``python -P -c SCRIPT WORDS``, which can import the helpers of tests.
        """
        self._start()
        if script is None:
            what, variables = ("-m", "ccctl"), variables or dict(self._environment)
        else:
            what, variables = ("-c", script), os.environ | self.helpers()
        request = (*what, words, str(folder), variables, namespaces())
        given, stdin = os.pipe()
        pipes = [os.pipe() for _ in range(2)]
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asked:
            asked.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MOST_BYTES)
            fds = [given, *(write for _, write in pipes)]
            try:
                asked.connect(self._path)
                socket.send_fds(asked, [marshal.dumps(request)], fds)
            finally:
                for fd in fds:
                    os.close(fd)
            with ThreadPoolExecutor(3) as streams:
                streams.submit(_write, stdin, text.encode())
                read = [streams.submit(_read, end) for end, _ in pipes]
                asked.recv(32)
                asked.settimeout(timeout)
                try:
                    status = asked.recv(32)
                except TimeoutError:
                    # The server then kills the process, and the threads wait for its ends of the pipes.
                    asked.shutdown(socket.SHUT_RDWR)
                    raise subprocess.TimeoutExpired(["ccctl", *words], timeout) from None
            out, err = (one.result() for one in read)
        return subprocess.CompletedProcess(["ccctl", *words], int(status), out, err)

    def serves(self, environment):
        """Return whether commands with these variables may be forked: imports read none that changed."""
        return not self.changed(environment)

    def changed(self, environment):
        """Return the names of the changed variables that imports read."""
        pairs = {*_compared(environment).items()} ^ {*self._environment.items()}
        return sorted({name for name, _ in pairs if name.startswith(_READ_BY_IMPORTS)})

    def close(self):
        if self._server is not None:
            self._server.stdin.close()
            self._server.wait()
            self._server = None
            shutil.rmtree(Path(self._path).parent)

    def fork_ranks(self):
        """Fork the ranks that this process itself starts, too, unless variables that imports read changed."""
        starter = import_module("exec.launcher.starters.starter")
        new_python = starter.rank_program

        def rank_program():
            if not self.serves(os.environ):
                return new_python()
            return self.program("-m", "exec.launcher.worker")

        starter.rank_program = rank_program

    def program(self, *words):
        """Return the command line that runs ``python -P WORDS`` in a forked process.

        Wait until the server is ready: without caches it may need longer than a rank is given to start.
        """
        self._start()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asked:
            asked.connect(self._path)
            # The server closes a connection that asks for nothing.
            asked.shutdown(socket.SHUT_WR)
            assert asked.recv(32) == b""
        return _client(self._path, *words)

    def helpers(self):
        """Return the variable by which a script, and each rank that it starts, finds the helpers of tests."""
        return {"PYTHONPATH": str(_CLIENT.parent)}

    def for_shells(self):
        """Return the text of a ``ccctl`` script for shells."""
        return f'#!/bin/sh\nexec {shlex.join(self.program("-m", "ccctl"))} "$@"\n'

    def _start(self):
        with self._starting:
            if self._server is None:
                self._start_now()

    def _start_now(self):
        self._path = str(Path(tempfile.mkdtemp(prefix="ccctl-tests-", dir=self._folder), "warm"))
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(self._path)
            listener.listen(128)
            command = [_PYTHON, "-P", __file__, self._path, str(listener.fileno())]
            self._server = subprocess.Popen(
                command, pass_fds=[listener.fileno()], stdin=subprocess.PIPE, env=self._environment
            )


@functools.cache
def warm_commands():
    """Return the server of this process, so that modules are imported once."""
    return WarmCommands()


def _compared(environment):
    return {name: value for name, value in environment.items() if name != "PYTEST_CURRENT_TEST"}


def _write(fd, content):
    with contextlib.suppress(BrokenPipeError), open(fd, "wb") as stream:  # noqa: PTH123 - a descriptor
        stream.write(content)


def _read(fd):
    with open(fd, encoding="utf-8") as stream:  # noqa: PTH123 - a descriptor
        return stream.read()


def import_all():
    """Import the modules that commands import."""
    for package in _PACKAGES:
        for module in pkgutil.walk_packages(import_module(package).__path__, f"{package}."):
            if not module.name.startswith(_LEFT_OUT) and not module.name.endswith("__main__"):
                import_module(module.name)
    for name in _OF_OTHERS:
        import_module(name)
    assert "mpi4py.MPI" not in sys.modules


def load_loops():
    """Load the compiled loops that most commands use, and numba's runtime, by small runs of them."""
    family = import_module("synth.networks.families").family
    check = import_module("synth.check")
    # Otherwise each command would look for a missing loop and run it as Python.
    with import_module("synth.kernels.compiled_loop").all_compiled():
        for method in ("greedy", "periodic"):
            asked = (family("ring:3", [1e-6], [1e9]), "all_reduce", 1 << 16)
            made = import_module("synth").synthesize(*asked, method=method).schedule
            assert check.check(made) == []
        assert check.judge(import_module("synth.compiler").lower(made.expanded())) == []
        # Ranks need the loops for a session's first schedules, its late parts, and programs.
        call = import_module("exec.adaptive.messages").CollectiveCall
        request = call("all_reduce", "sum", "float32", 1 << 10, 4)
        found = import_module("exec.adaptive.replanner").good_schedules(asked[0], [request], range(3), 1.0)
        parts = import_module("exec.adaptive.compiled_parts")
        assert parts.whole_parts(found) and [*parts.late_parts(found)]
        import_module("exec.mpi.interpreter").compile_for(("float32",))
    cpu_target = import_module("numba.core.registry").cpu_target
    import_module("numba.core.runtime.nrt").rtsys.initialize(cpu_target.target_context)


def _serve(listener):
    """Fork a process for each request; return (request, streams) in the forked process.

    Several may run at once: no request waits for another one's process.
    """
    here = namespaces()
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    # Nothing is written there: the pipe breaks when the tests end.
    poll.register(0, 0)
    asking, running = {}, {}
    while True:
        for ready, _ in poll.poll():
            if ready == 0:
                os._exit(0)
            if ready == listener.fileno():
                asked, _ = listener.accept()
                asking[asked.fileno()] = asked
                poll.register(asked, select.POLLIN)
            elif ready in running:
                pid, asked = running[ready]
                over, status = os.waitpid(pid, os.WNOHANG)
                if not over:
                    # At the poll, this number was another descriptor's, which has been closed since.
                    continue
                del running[ready]
                poll.unregister(ready)
                os.close(ready)
                with contextlib.suppress(KeyError):
                    poll.unregister(asked)
                _answer(asked, os.waitstatus_to_exitcode(status))
                asked.close()
            elif ready in asking:
                asked = asking[ready]
                try:
                    message, streams, _, _ = socket.recv_fds(asked, _MOST_BYTES, 3, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    continue
                del asking[ready]
                request = marshal.loads(message) if message else None
                if request is None or request[-1] != here:
                    poll.unregister(asked)
                    asked.close()
                elif (pid := os.fork()) == 0:
                    os.setsid()
                    for other in (listener, asked, *asking.values(), *(one for _, one in running.values())):
                        other.close()
                    return request, streams
                else:
                    _answer(asked, pid)
                    running[ended := os.pidfd_open(pid)] = pid, asked
                    poll.register(ended, select.POLLIN)
                for fd in streams:
                    os.close(fd)
            else:
                # The client hung up, unless it was told of the end in this round.
                for pid, asked in running.values():
                    if asked.fileno() == ready:
                        poll.unregister(asked)
                        os.kill(pid, signal.SIGKILL)


def _answer(asked, number):
    with contextlib.suppress(OSError):
        asked.send(str(number).encode())


def _client(path, *words):
    return [_PYTHON, "-I", "-S", str(_CLIENT), path, *words]


def _main():
    path, listener = sys.argv[1], socket.socket(fileno=int(sys.argv[2]))
    import_all()
    import_module("ccctl.main").command_line()
    load_loops()
    # Commands start their ranks from here, too.
    starter = import_module("exec.launcher.starters.starter")
    run_folders = import_module("exec.launcher.run_folders")
    starter.rank_program = functools.partial(_client, path, "-m", "exec.launcher.worker")
    gc.collect()
    gc.freeze()
    (flag, runs, words, folder, variables, _), streams = _serve(listener)
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
        os.close(fd)
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, closefd=False, errors=errors)  # noqa: SIM115 - descriptors
        for number, mode, errors in ((0, "r", "strict"), (1, "w", "strict"), (2, "w", "backslashreplace"))
    )
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    if run_folders.AGENT in variables:
        # The agent of a host starts the client, which stands for this process.
        os.environ[run_folders.AGENT] = str(os.getppid())
    sys.path[:0] = filter(None, variables.get("PYTHONPATH", "").split(os.pathsep))
    status = 0
    try:
        sys.argv = [flag, *words]
        if flag == "-c":
            main = sys.modules["__main__"] = ModuleType("__main__")
            exec(runs, main.__dict__)
        else:
            runpy.run_module(runs, run_name="__main__", alter_sys=True)
    except SystemExit as leaving:
        status = leaving.code or 0
    threading._shutdown()  # It waits for threads that are no daemons, as Python itself does.
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)


if __name__ == "__main__":
    _main()
