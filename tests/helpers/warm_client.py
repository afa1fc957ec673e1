"""Runs ``ccctl``, a rank or a script in a process that `warm_commands.WarmCommands` forks.

Its arguments are the path of the server's socket and those of Python: ``-m MODULE WORDS`` or
``-c SCRIPT WORDS``. It stands for the forked process: its parent waits for it and kills it, and it ends as
the forked process does. If its namespaces are not the server's, as inside a lab, it starts a new Python.
"""

import _signal
import _socket
import marshal
import os
import struct
import sys

_STREAMS = struct.pack("3i", 0, 1, 2)


def namespaces():
    """The namespaces of this process, and the processors it may run on: a forked one has the server's."""
    names = [os.readlink(f"/proc/self/ns/{name}") for name in ("net", "pid", "mnt")]  # noqa: PTH115
    return [*names, sorted(os.sched_getaffinity(0))]


def _main():
    path, flag, runs, *words = sys.argv[1:]
    asked = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    told = b""
    try:
        asked.setsockopt(_socket.SOL_SOCKET, _socket.SO_SNDBUF, 1 << 20)
        asked.connect(path)
        here = os.getcwd()  # noqa: PTH109 - loads less
        request = (flag, runs, words, here, dict(os.environ), namespaces())
        asked.sendmsg([marshal.dumps(request)], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, _STREAMS)])
        told = asked.recv(32)
    except OSError:
        pass
    if not told:
        os.execv(sys.executable, [sys.executable, "-P", flag, runs, *words])
    if runs == "exec.launcher.worker":
        # Ranks ignore these, so their client must outlive them too.
        for number in (_signal.SIGINT, _signal.SIGTERM):
            _signal.signal(number, _signal.SIG_IGN)
    status = int(asked.recv(32))
    if status < 0:
        # SIGKILL has no handler that could be set.
        if -status != _signal.SIGKILL:
            _signal.signal(-status, _signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    _main()
