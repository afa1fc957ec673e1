"""A wire between two threads with the calls of a communicator that probes use."""

import queue
import threading
import time

from limits import HANG_S


class Wire:
    """One end of a wire."""

    def __init__(self, rank, boxes, delay_s=0.0):
        self.rank, self.boxes, self.delay_s = rank, boxes, delay_s
        self.sent_bytes = []

    def Send(self, buffer, peer, tag):  # noqa: N802 - as mpi4py names it
        self.sent_bytes.append(len(memoryview(buffer)))
        self.boxes[peer].put((time.perf_counter() + self.delay_s, tag, bytes(buffer[:8])))

    def Recv(self, buffer, peer, tag):  # noqa: N802 - as mpi4py names it
        due_s, sent_tag, content = self.boxes[self.rank].get(timeout=HANG_S)
        assert tag == sent_tag
        while time.perf_counter() < due_s:
            pass
        memoryview(buffer)[: len(content)] = content

    def Irecv(self, buffer, peer, tag):  # noqa: N802 - as mpi4py names it
        return Request(self, buffer, peer, tag)

    def Iprobe(self, peer, tag):  # noqa: N802 - as mpi4py names it
        return not self.boxes[self.rank].empty()

    def send(self, value, dest, tag):
        self.boxes[dest].put((0.0, tag, value))

    def recv(self, source, tag):
        _, sent_tag, value = self.boxes[self.rank].get(timeout=HANG_S)
        assert tag == sent_tag
        return value


class Request:
    """A message that is asked for and taken when it has come."""

    def __init__(self, wire, *wanted):
        self._wire, self._wanted = wire, wanted

    def Test(self):  # noqa: N802 - as mpi4py names it
        if not self._wire.Iprobe(*self._wanted[1:]):
            return False
        self._wire.Recv(*self._wanted)
        return True


def beside(first, second):
    """Run ``second`` beside ``first`` and give back what ``first`` returns."""
    other = threading.Thread(target=second)
    other.start()
    value = first()
    other.join(10)
    assert not other.is_alive()
    return value


def wires(delay_s=0.0):
    boxes = [queue.SimpleQueue(), queue.SimpleQueue()]
    return Wire(0, boxes, delay_s), Wire(1, boxes, delay_s)
