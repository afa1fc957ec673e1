"""Agreement of ranks through the store before they are connected."""

import threading

import pytest

from exec.training.backend.group_rendezvous import exchange_through, hear_rank_0
from probes.base.errors import UnavailableError, UsageError


class MemoryStore:
    """The store of torch.distributed, for threads; to ask it for what is not there is an error."""

    def __init__(self):
        self.values, self.lock = {}, threading.Lock()

    def set(self, key, value):
        with self.lock:
            self.values[key] = value.encode()

    def get(self, key):
        with self.lock:
            return self.values[key]

    def check(self, keys):
        with self.lock:
            return all(key in self.values for key in keys)


def on_all(work, size=3):
    """Return ``work(rank)`` of each rank, or the error that it raises."""
    found = {}

    def run(rank):
        try:
            found[rank] = work(rank)
        except Exception as error:
            found[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[rank] for rank in range(size)]


def words(store, make, size=3):
    return on_all(lambda rank: hear_rank_0(store, rank, size, make, 60), size)


def test_rank_0_alone_has_what_it_makes_and_all_have_its_text_and_scope():
    heard = words(MemoryStore(), lambda: ("a network", "measured"))
    assert [one.made for one in heard] == ["a network", None, None]
    assert {one.text for one in heard} == {"measured"}
    assert len({one.scope for one in heard}) == 1


def test_what_an_earlier_start_left_in_the_store_is_not_heard():
    store, scopes = MemoryStore(), []
    for start in range(3):
        heard = words(store, lambda start=start: (None, str(start)))
        assert {one.text for one in heard} == {str(start)}
        scopes += {one.scope for one in heard}
    assert len(set(scopes)) == 3


def test_a_rank_that_does_not_come_is_named():
    first, second = on_all(lambda rank: hear_rank_0(MemoryStore(), rank, 2, lambda: (None, ""), 0.2), 2)
    assert isinstance(first, UnavailableError) and "ranks [1] of 2" in str(first)
    assert isinstance(second, UnavailableError) and "rank 0 has not made the group" in str(second)


def test_ranks_say_something_to_all_through_a_store():
    store = MemoryStore()

    def work(rank):
        exchange = exchange_through(store, rank, 3, 60)
        return [exchange(said) for said in (b"", bytes([rank]) * rank)]

    assert on_all(work) == [[[b"", b"", b""], [b"", b"\1", b"\2\2"]]] * 3


@pytest.mark.parametrize("kind", [UsageError, KeyError])
def test_what_rank_0_raises_is_raised_on_all(kind):
    def refuse():
        raise kind("no network")

    first, *others = words(MemoryStore(), refuse)
    assert isinstance(first, kind)
    assert all(isinstance(error, UsageError) and "no network" in str(error) for error in others)
