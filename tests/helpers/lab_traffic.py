"""Labs for tests, and bytes sent through them by plain sockets."""

import contextlib
import itertools
import os
import subprocess
import sys

from exec.lab import lifecycle
from exec.lab.model import Lab, LabHost, PairRate
from exec.lab.run import files

MBIT = 125_000
_NUMBERS = itertools.count()
_RECEIVER = """
import socket, sys, time
listener = socket.create_server(("", 5000))
print("listening", flush=True)
connection, _ = listener.accept()
wanted, got = int(sys.argv[1]), len(connection.recv(1))
started_s = time.perf_counter()
while got < wanted:
    got += len(connection.recv(1 << 20))
print(time.perf_counter() - started_s)
"""
_SENDER = """
import socket, sys
with socket.create_connection((sys.argv[1], 5000)) as connection:
    connection.sendall(bytes(int(sys.argv[2])))
"""


def sample_lab(hosts=2, rate_mbit=100, pairs=(), **fields):
    """A lab of hosts a, b, c, … under a name that no other test of this machine has."""
    rate = None if rate_mbit is None else rate_mbit * MBIT
    names = "abcdefgh"[:hosts]
    fields.setdefault("name", f"t{os.getpid()}-{next(_NUMBERS)}")
    return Lab(
        hosts=tuple(LabHost(name, 1, rate, rate) for name in names),
        pairs=tuple(PairRate(src, dst, mbit * MBIT) for src, dst, mbit in pairs),
        **fields,
    )


@contextlib.contextmanager
def standing(made, folder):
    """A lab while it is up, and ``folder`` with what its commands need."""
    for name, content in files(made).items():
        (folder / name).write_text(content)
        (folder / name).chmod(0o755)
    lifecycle.up(made)
    yield made, folder
    lifecycle.down(made.name)


def python_in(lab, host, script, *arguments, **options):
    command = ["ip", "netns", "exec", lab.namespace(host), sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)


def rate_mbit(lab, src, dst, size_bytes, tries=2):
    """Return the rate of one flow from src to dst, measured at dst; the best of some tries."""
    return max(_once(lab, src, dst, size_bytes) for _ in range(tries))


def _once(lab, src, dst, size_bytes):
    with python_in(lab, dst, _RECEIVER, size_bytes) as receiver:
        assert receiver.stdout.readline() == "listening\n"
        with python_in(lab, src, _SENDER, lab.address(dst), size_bytes) as sender:
            seconds = float(receiver.communicate(timeout=30)[0])
        assert sender.returncode == 0
    return size_bytes / seconds / MBIT
