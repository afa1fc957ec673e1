"""The kernel's count of bytes sent and not acknowledged."""

import socket

from exec.sockets.stalls import goes_nowhere, unacknowledged_bytes


def test_bytes_that_arrive_are_acknowledged_and_a_full_buffer_is_no_outage():
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as end,
    ):
        there, _ = server.accept()
        with there:
            end.sendall(b"x" * 1000)
            there.recv(1000, socket.MSG_WAITALL)
            assert unacknowledged_bytes(end) == 0
            end.setblocking(False)
            try:
                while True:
                    end.send(b"x" * 65536)
            except BlockingIOError:
                pass
            assert unacknowledged_bytes(end) > 0 and not goes_nowhere(end)


def test_a_pipe_within_a_host_goes_somewhere():
    one, other = socket.socketpair()
    with one, other:
        assert not goes_nowhere(one)
