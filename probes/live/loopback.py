"""Traffic over a NIC and back by sockets, trusted only if the NIC's own byte counter proves it.

The kernel usually delivers traffic to a local address directly, without the NIC. A probe that timed such
traffic would measure memory (AdapCC's published program does).
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path

from probes.live.affinity import bound_to
from probes.sysfs import decimal
from probes.topology import Host, Nic

__all__ = ["SocketLoopback"]

# This many bytes stand out in the byte counter of a NIC that other programs use, too.
_PROOF_BYTES = 20 << 20
# A few bytes, so that only latency counts, and often enough that one trip is undisturbed.
_PING_BYTES, _PINGS = 64, 100
# Long enough for a loaded host, short enough that a user waits if packets are dropped.
_PATIENCE_S = 10.0


class SocketLoopback:
    """TCP from the address of a NIC to itself."""

    def __init__(self, host: Host, root: Path = Path("/")) -> None:
        self._nics: Mapping[str, Nic] = {nic.name: nic for nic in host.nics}
        self._cpus = {node.index: node.cpus for node in host.numa}
        self._root = root
        self._proven = cache(self._prove)

    def refusal(self, nic: str) -> str:
        """Return why such traffic does not reach the NIC; "" if it does. The first call sends 20 MB."""
        return self._proven(nic)

    def round_trip_s(self, nic: str, node: int) -> float:
        """Return the least round trip of a hundred, in seconds, from a process bound to a NUMA node."""
        with bound_to(self._cpus.get(node, "")), self._pair(nic) as (here, there):
            here.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            there.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            times = []
            for _ in range(_PINGS):
                started_s = time.perf_counter()
                for sender, receiver in ((here, there), (there, here)):
                    sender.sendall(bytes(_PING_BYTES))
                    receiver.recv(_PING_BYTES, socket.MSG_WAITALL)
                times.append(time.perf_counter() - started_s)
        return min(times)

    @contextmanager
    def busy(self, nic: str) -> Iterator[None]:
        """Keep the NIC busy while the block runs."""
        over = threading.Event()
        with self._pair(nic) as (here, there):
            drain = threading.Thread(target=_receive_all, args=(there,), daemon=True)
            fill = threading.Thread(target=_send_until, args=(here, over), daemon=True)
            drain.start()
            fill.start()
            try:
                yield
            finally:
                over.set()
                fill.join(_PATIENCE_S)
                here.shutdown(socket.SHUT_WR)
                drain.join(_PATIENCE_S)

    def _prove(self, nic: str) -> str:
        address = self._address(nic)
        if not address:
            return f"{nic} has no IPv4 address to send to"
        before = self._sent_bytes(nic), self._sent_bytes("lo")
        if before[0] is None:
            return f"{nic} has no byte counter, so nothing could prove that traffic reaches it"
        try:
            with self._pair(nic) as (here, there):
                drain = threading.Thread(target=_receive_all, args=(there,), daemon=True)
                drain.start()
                here.sendall(bytes(_PROOF_BYTES))
                here.shutdown(socket.SHUT_WR)
                drain.join(_PATIENCE_S)
        except OSError as error:
            return f"{nic}: nothing can be sent to {address}: {error.strerror or error}"
        counted = (self._sent_bytes(nic) or 0) - before[0]
        inside = (self._sent_bytes("lo") or 0) - (before[1] or 0)
        # Other programs may use the NIC meanwhile, so the loopback interface must also not have counted the
        # bytes.
        if counted >= 0.9 * _PROOF_BYTES and inside < 0.5 * _PROOF_BYTES:
            return ""
        counts = (
            f"of {_PROOF_BYTES} bytes sent to its own address {address}, {nic} counted {counted}, lo {inside}"
        )
        return f"{counts}: what is sent to a local address never reaches the NIC; RDMA would"

    def _sent_bytes(self, nic: str) -> int | None:
        return decimal(self._root / "sys/class/net" / nic / "statistics/tx_bytes")

    def _address(self, nic: str) -> str:
        known = self._nics.get(nic)
        return (
            next((address for address in known.addresses if ":" not in address), "")
            if known is not None
            else ""
        )

    @contextmanager
    def _pair(self, nic: str) -> Iterator[tuple[socket.socket, socket.socket]]:
        address = self._address(nic)
        with closing(socket.create_server((address, 0))) as listener:
            listener.settimeout(_PATIENCE_S)
            with socket.create_connection(
                listener.getsockname(), _PATIENCE_S, source_address=(address, 0)
            ) as here:
                there, _ = listener.accept()
                with there:
                    there.settimeout(_PATIENCE_S)
                    yield here, there


def _receive_all(connection: socket.socket) -> None:
    while connection.recv(1 << 20):
        pass


def _send_until(connection: socket.socket, over: threading.Event) -> None:
    content = bytes(1 << 20)
    while not over.is_set():
        connection.sendall(content)
