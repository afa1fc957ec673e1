"""The kernel paces a connection as its wire asks, and no longer."""

import socket

import pytest

from exec.sockets import tcp_ends


@pytest.fixture
def end():
    listener = socket.create_server(("127.0.0.1", 0))
    with listener, socket.create_connection(listener.getsockname()) as found:
        yield found


def rate(end):
    size = 8
    return int.from_bytes(end.getsockopt(socket.SOL_SOCKET, tcp_ends._SO_MAX_PACING_RATE, size), "little")


def test_a_socket_is_paced_and_set_free_again(end):
    unpaced = rate(end)
    tcp_ends._pace(end, 2.5e6)
    assert rate(end) == 2_500_000
    tcp_ends._pace(end, 0.0)
    assert rate(end) == unpaced
