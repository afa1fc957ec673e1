"""Ranks of this host that count as hosts of their own, so that data goes over wires between hosts."""

import os

import exec.mpi.connections
import exec.sockets.mesh
import exec.sockets.tcp_ends
import exec.sockets.ucx
import exec.sockets.wires


def _none_over_tcp(wires, sockets):
    assert not wires
    return exec.sockets.tcp_ends.TcpEnds(wires, sockets)


def over(wires, rank):
    """Make this process a host, whose data goes over ``wires``: ``tcp``, ``ucx`` or ``ucx/TRANSPORTS``.

    UCX's transports are ``tcp`` where none are given. Nothing may then go over a socket instead.
    """
    word, _, transports = wires.partition("/")
    os.environ["CCCTL_WIRES"], os.environ["UCX_TLS"] = word, transports or "tcp"
    exec.mpi.connections.host_key = exec.sockets.mesh.host_key = lambda: ("apart", rank)
    if word == "ucx":
        exec.sockets.wires.TcpEnds = _none_over_tcp
        # A busy machine is no reason to take TCP.
        exec.sockets.ucx._TRIAL_S = 100.0
