"""Values merged up a tree of ranks: each counts once, and no rank receives many."""

from collections import Counter

import pytest

from probes.live import first_ranks, merged_up_a_tree


class Mail:
    """Ranks of one process that run one after the other, the last first; it counts what each receives."""

    def __init__(self):
        self.boxes, self.received = {}, Counter()

    def of(self, rank):
        return Post(self, rank)


class Post:
    def __init__(self, mail, rank):
        self._mail, self._rank = mail, rank

    def Get_rank(self):  # noqa: N802 - MPI's own name
        return self._rank

    def send(self, value, dest, tag=0):
        self._mail.boxes[self._rank, dest] = value

    def recv(self, source, tag=0):
        self._mail.received[self._rank] += 1
        return self._mail.boxes.pop((source, self._rank))


@pytest.mark.parametrize("count", [1, 2, 8, 9, 10, 73, 74, 700])
def test_each_value_arrives_once_and_no_rank_receives_more_than_eight(count):
    ranks, mail = [8 * at for at in range(count)], Mail()
    found = {rank: merged_up_a_tree(mail.of(rank), ranks, {rank}, set.union) for rank in reversed(ranks)}
    assert found.pop(0) == set(ranks)
    assert set(found.values()) <= {None}
    assert max(mail.received.values(), default=0) <= 8
    assert sum(mail.received.values()) == count - 1


def test_the_first_rank_of_each_machine():
    assert first_ranks(["b", "b", "a", "b", "a"]) == {"b": 0, "a": 2}
