"""The kernel's counters of TCP segments, and files that are none."""

import socket

import pytest

from probes.sampling.tcp_segments import sent_and_retransmitted

SNMP = """\
Ip: Forwarding DefaultTTL
Ip: 1 64
Tcp: RtoAlgorithm RtoMin MaxConn InSegs OutSegs RetransSegs InErrs
Tcp: 1 200 -1 100 990 10 0
Udp: InDatagrams
Udp: 7
"""


def test_segments_are_counted_with_those_sent_again(tmp_path):
    (tmp_path / "snmp").write_text(SNMP)
    assert sent_and_retransmitted(tmp_path / "snmp") == (1000, 10)


@pytest.mark.parametrize("text", ["", "Tcp: A B\n", "Tcp: OutSegs\nTcp: many\n", "Tcp: InSegs\nTcp: 1\n"])
def test_where_nothing_is_counted_there_is_none(tmp_path, text):
    (tmp_path / "snmp").write_text(text)
    assert sent_and_retransmitted(tmp_path / "snmp") == (0, 0)
    assert sent_and_retransmitted(tmp_path / "nowhere") == (0, 0)


def test_what_is_sent_here_counts():
    before, _ = sent_and_retransmitted()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        pass
    after, retransmitted = sent_and_retransmitted()
    assert after > before or (after, retransmitted) == (0, 0)
