"""What ranks agree on through the store before they are connected."""

import threading

import pytest

from exec.training.backend.rendezvous import of_rank_0
from probes.errors import UsageError


class MemoryStore:
    """The store of torch.distributed, for threads."""

    def __init__(self):
        self.values, self.changed = {}, threading.Condition()

    def set(self, key, value):
        with self.changed:
            self.values[key] = value.encode()
            self.changed.notify_all()

    def get(self, key):
        with self.changed:
            assert self.changed.wait_for(lambda: key in self.values, 60)
            return self.values[key]

    def add(self, key, amount):
        with self.changed:
            self.values[key] = self.values.get(key, 0) + amount
            return self.values[key]


def on_all(make, size=3):
    """What each rank gets, or the error that it raises."""
    store, found = MemoryStore(), {}

    def run(rank):
        try:
            found[rank] = of_rank_0(store, rank, size, make)
        except Exception as error:
            found[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[rank] for rank in range(size)]


def test_rank_0_alone_has_what_it_makes():
    assert on_all(lambda: "a network") == ["a network", None, None]


@pytest.mark.parametrize("kind", [UsageError, KeyError])
def test_what_rank_0_raises_is_raised_on_all(kind):
    def refuse():
        raise kind("no network")

    first, *others = on_all(refuse)
    assert isinstance(first, kind)
    assert all(isinstance(error, UsageError) and "no network" in str(error) for error in others)
