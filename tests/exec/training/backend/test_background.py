"""The process that works beside a training job."""

import threading
import time

import pytest
from sample_schedules import complete

from exec.adaptive import CollectiveCall
from exec.training.backend import background
from exec.training.backend.background import Background
from probes.base import CcctlError, UnavailableError
from synth.network import Network, build

REQUEST = CollectiveCall("all_reduce", "sum", "float32", 1 << 16, 4)


@pytest.fixture(autouse=True)
def no_idle_process():
    yield
    while not background._IDLE.empty():
        background._IDLE.get_nowait().end()


def network() -> Network:
    return complete(4)


def idle_pid() -> int:
    """Return the number of the idle process, which stays idle."""
    worker = background._IDLE.get_nowait()
    background._IDLE.put_nowait(worker)
    return worker.process.pid


def test_one_process_serves_the_orders_of_all_groups_until_it_dies():
    """To start a process takes longer than most searches: it is kept, and its errors are answers."""
    assert Background(0.2).search(network(), REQUEST).collective.kind == "all_reduce"
    first = idle_pid()
    with pytest.raises(CcctlError, match="rank"):
        Background(0.2).search(
            build("apart", ["a", "b"], []), CollectiveCall("all_reduce", "sum", "float32", 1 << 16, 4)
        )
    group = Background(0.2)
    group.search(network(), REQUEST)
    assert idle_pid() == first
    # A process that died while it was idle is replaced.
    worker = background._IDLE.get_nowait()
    worker.process.kill()
    worker.process.wait()
    background._IDLE.put_nowait(worker)
    group.search(network(), REQUEST)
    assert idle_pid() != first


def test_closing_a_group_ends_its_search():
    group = Background(600.0)
    raised: list[BaseException] = []

    def search() -> None:
        with pytest.raises(UnavailableError) as failure:
            group.search(network(), REQUEST)
        raised.append(failure.value)

    thread = threading.Thread(target=search)
    thread.start()
    while group._worker is None:
        time.sleep(0.01)
    group.close()
    thread.join(60)
    assert raised and background._IDLE.empty()
    with pytest.raises(UnavailableError, match="closed"):
        group.search(network(), REQUEST)
