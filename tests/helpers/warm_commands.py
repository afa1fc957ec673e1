"""Runs ccctl, or scripts, in processes that are forked from one which has imported what commands import.

That is most of the time of a short command. Each is a process of its own, with its arguments, its folder and
its streams, and the first one has done nothing but import and read the options of all commands. It ends as
Python does, except that modules are not cleared: that takes longer than a short command.
"""

import atexit
import contextlib
import functools
import gc
import os
import pickle
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from types import ModuleType

_MOST_BYTES = 1 << 20
# Modules of ranks, GPUs and frameworks are left to the tests that need them.
_LEFT_OUT = ("exec.cuda.", "exec.published.", "exec.training.", "ccctl.torch.")
# Packages that commands import where they need them.
_OF_OTHERS = ("psutil", "pulp", "pynvml", "scipy.optimize", "scipy.sparse")
_READ_BY_IMPORTS = ("PYTHON", "NUMBA", "LC_", "LANG", "XDG_CACHE_HOME", "OMP_", "OPENBLAS_", "LD_")
_PACKAGES = ("ccctl", "exec", "probes", "synth")


class WarmCommands:
    """The process that commands are forked from; started where the first of them is asked for."""

    def __init__(self):
        self._environment = _compared(os.environ)
        self._server = None
        self._starting = threading.Lock()

    def run(self, words, text, folder, timeout, script=None, variables=None):
        """As ``subprocess.run`` of ``ccctl WORDS`` in ``folder``, with ``text`` on its standard input.

        With a ``script`` as ``python -P -c SCRIPT WORDS`` instead, which can import the helpers of tests.
        """
        self._start()
        if script is not None:
            variables = dict(os.environ)
        given, stdin = os.pipe()
        pipes = [os.pipe() for _ in range(2)]
        told, reply = socket.socketpair()
        with told:
            fds = [given, *(write for _, write in pipes), reply.fileno()]
            try:
                socket.send_fds(self._control, [pickle.dumps((words, str(folder), script, variables))], fds)
            finally:
                for fd in fds[:-1]:
                    os.close(fd)
                reply.close()
            with ThreadPoolExecutor(3) as streams:
                streams.submit(_write, stdin, text.encode())
                read = [streams.submit(_read, end) for end, _ in pipes]
                pid = int(told.recv(32) or 0)
                told.settimeout(timeout)
                try:
                    status = told.recv(32)
                except TimeoutError:
                    os.kill(pid, signal.SIGKILL)
                    raise subprocess.TimeoutExpired(["ccctl", *words], timeout) from None
            out, err = (one.result() for one in read)
        return subprocess.CompletedProcess(["ccctl", *words], int(status), out, err)

    def serves(self, environment):
        """Whether commands with these variables may be forked: those that imports read are as they were."""
        return not self.changed(environment)

    def changed(self, environment):
        """Names of the variables that imports read and that are no longer as they were."""
        pairs = {*_compared(environment).items()} ^ {*self._environment.items()}
        return sorted({name for name, _ in pairs if name.startswith(_READ_BY_IMPORTS)})

    def close(self):
        if self._server is not None:
            self._control.close()
            self._server.wait()
            self._server = None

    def for_shells(self):
        """(text of a ``ccctl`` script for shells, variables and descriptors that these have to inherit)."""
        self._start()
        client = Path(__file__).with_name("warm_client.py")
        script = f'#!/bin/sh\nexec "{sys.executable}" -I -S "{client}" "$@"\n'
        fd = self._control.fileno()
        return script, {"CCCTL_TESTS_CONTROL": str(fd)}, (fd,)

    def _start(self):
        with self._starting:
            if self._server is None:
                self._start_now()

    def _start_now(self):
        self._control, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _MOST_BYTES)
        with far:
            command = [sys.executable, "-P", __file__, str(far.fileno())]
            self._server = subprocess.Popen(
                command, pass_fds=[far.fileno()], stdin=subprocess.DEVNULL, env=self._environment
            )


@functools.cache
def warm_commands():
    """The one of this process, so that what is imported is imported once."""
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
    """Import what commands import."""
    for package in _PACKAGES:
        for module in pkgutil.walk_packages(import_module(package).__path__, f"{package}."):
            if not module.name.startswith(_LEFT_OUT) and not module.name.endswith("__main__"):
                import_module(module.name)
    for name in _OF_OTHERS:
        import_module(name)
    assert "mpi4py.MPI" not in sys.modules


def load_loops():
    """Load the compiled loops that most commands use, and numba's runtime, by their work in small."""
    family = import_module("synth.networks.families").family
    check = import_module("synth.check")
    # Each command would look for a loop that is not there, and have Python run it.
    with import_module("synth.kernels.compiled_loop").all_compiled():
        for method in ("greedy", "periodic"):
            asked = (family("ring:3", [1e-6], [1e9]), "all_reduce", 1 << 16)
            made = import_module("synth").synthesize(*asked, method=method).schedule
            assert check.check(made) == []
        assert check.judge(import_module("synth.compiler").lower(made.expanded())) == []
        # Ranks need loops for a session's first schedules, for its late parts, and to run programs.
        call = import_module("exec.adaptive.messages").CollectiveCall
        request = call("all_reduce", "sum", "float32", 1 << 10, 4)
        found = import_module("exec.adaptive.replanner").good_schedules(asked[0], [request], range(3), 1.0)
        parts = import_module("exec.adaptive.compiled_parts")
        assert parts.whole_parts(found) and [*parts.late_parts(found)]
        import_module("exec.mpi.interpreter").compile_for(("float32",))
    cpu_target = import_module("numba.core.registry").cpu_target
    import_module("numba.core.runtime.nrt").rtsys.initialize(cpu_target.target_context)


def _serve(control):
    """Fork a process for each command that is asked for; returns in it, as where Python starts.

    Several may run at once. A fork takes more time than a short command, so no other process waits for it.
    """
    asked, running = select.poll(), {}
    asked.register(control, select.POLLIN)
    while True:
        for ready, _ in asked.poll():
            if ready != control.fileno():
                asked.unregister(ready)
                os.close(ready)
                pid, reply = running.pop(ready)
                _answer(reply, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
                os.close(reply)
                continue
            message, fds, _, _ = socket.recv_fds(control, _MOST_BYTES, 4)
            if not message:
                os._exit(0)
            *streams, reply = fds
            if (pid := os.fork()) == 0:
                control.close()
                for other, (_, its_reply) in running.items():
                    os.close(other)
                    os.close(its_reply)
                os.close(reply)
                return pickle.loads(message), streams
            _answer(reply, pid)
            for fd in streams:
                os.close(fd)
            ended = os.pidfd_open(pid)
            running[ended] = pid, reply
            asked.register(ended, select.POLLIN)


def _answer(reply, number):
    with contextlib.suppress(OSError):
        os.write(reply, str(number).encode().ljust(32))


def _main():
    control = socket.socket(fileno=int(sys.argv[1]))
    import_all()
    import_module("ccctl.main").command_line()
    load_loops()
    gc.collect()
    gc.freeze()
    (words, folder, script, variables), streams = _serve(control)
    for number, fd in enumerate(streams):
        os.dup2(fd, number)
        os.close(fd)
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, closefd=False, errors=errors)  # noqa: SIM115 - descriptors
        for number, mode, errors in ((0, "r", "strict"), (1, "w", "strict"), (2, "w", "backslashreplace"))
    )
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    os.chdir(folder)
    sys.argv = ["ccctl" if script is None else "-c", *words]
    if variables is not None:
        os.environ.clear()
        os.environ.update(variables)
    status = 0
    try:
        if script is None:
            runpy.run_module("ccctl", run_name="__main__", alter_sys=True)
        else:
            here = str(Path(__file__).parent)
            sys.path.insert(0, here)
            os.environ["PYTHONPATH"] = here
            main = sys.modules["__main__"] = ModuleType("__main__")
            exec(script, main.__dict__)
    except SystemExit as leaving:
        status = leaving.code or 0
    threading._shutdown()  # As Python itself does, it waits for threads that are no daemons.
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)


if __name__ == "__main__":
    _main()
