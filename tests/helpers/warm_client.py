"""Runs ``ccctl``, a rank or a script in a process that `warm_commands.WarmCommands` forks.

Its arguments are the socket to ask at, then those of Python: ``-m MODULE WORDS`` or ``-c SCRIPT WORDS``.
Others start it, wait for it and kill it in place of the forked process, and it ends as that one does. In
namespaces of its own, as inside a lab, it starts a new Python instead.
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
        # As ranks do: SIGINT and SIGTERM.
        for number in (2, 15):
            _signal.signal(number, _signal.SIG_IGN)
    status = int(asked.recv(32))
    if status < 0:
        # SIGKILL has no handler that could be set.
        if -status != 9:
            _signal.signal(-status, _signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


if __name__ == "__main__":
    _main()
