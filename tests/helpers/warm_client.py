"""Runs ``ccctl ARGUMENTS`` through `warm_commands.WarmCommands`, for shells that tests start.

Without their socket, as inside a lab, it starts a new Python instead.
"""

import os
import pickle
import socket
import sys


def _control():
    """The socket of `WarmCommands` if this process has inherited it, else None."""
    try:
        found = socket.socket(fileno=int(os.environ["CCCTL_TESTS_CONTROL"]))
    except (KeyError, ValueError, OSError):
        return None
    return found if (found.family, found.type) == (socket.AF_UNIX, socket.SOCK_SEQPACKET) else None


def _main():
    control = _control()
    if control is None:
        os.execv(sys.executable, [sys.executable, "-P", "-m", "ccctl", *sys.argv[1:]])
    told, reply = socket.socketpair()
    message = pickle.dumps((sys.argv[1:], os.getcwd(), None, dict(os.environ)))  # noqa: PTH109 - loads less
    socket.send_fds(control, [message], [0, 1, 2, reply.fileno()])
    reply.close()
    told.recv(32)
    status = int(told.recv(32))
    os._exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    _main()
