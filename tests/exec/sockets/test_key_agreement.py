"""A key over a public medium: the same on all ranks, hidden from readers, refused after changes."""

import threading

import pytest

from exec.sockets.key_agreement import agree
from probes.base.errors import UnavailableError


class Board:
    """A medium that everybody reads; ``change`` may alter what a rank says in a round."""

    def __init__(self, size, change=lambda turn, rank, said: said):
        self.size, self.change = size, change
        self.said = {}
        self.barriers = [threading.Barrier(size, timeout=60) for _ in range(2)]

    def of(self, rank):
        turns = iter(range(2))

        def exchange(content):
            turn = next(turns)
            self.said[turn, rank] = self.change(turn, rank, content)
            self.barriers[turn].wait()
            return [self.said[turn, other] for other in range(self.size)]

        return exchange


def agreed(board, secrets):
    found = [None] * board.size

    def run(rank):
        try:
            found[rank] = agree(rank, board.size, board.of(rank), secrets[rank])
        except (UnavailableError, threading.BrokenBarrierError) as error:
            found[rank] = error
            if rank == 0:
                board.barriers[1].abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(board.size)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return found


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("secret", [b"", b"from the launcher"])
def test_all_ranks_have_one_key_that_no_reader_of_the_medium_sees(size, secret):
    board = Board(size)
    keys = agreed(board, [secret] * size)
    assert len(set(keys)) == 1 and len(keys[0]) == 32
    assert all(keys[0] not in said for said in board.said.values())
    assert agreed(Board(size), [secret] * size)[0] != keys[0]


def test_a_rank_with_another_secret_is_refused():
    keys = agreed(Board(3), [b"one", b"one", b"other"])
    assert keys[0] == keys[1] and isinstance(keys[2], UnavailableError)


@pytest.mark.parametrize("value", [b"", bytes(256), (1).to_bytes(256, "big"), b"\xff" * 256, b"\1" * 255])
def test_a_public_value_that_gives_the_key_away_is_refused(value):
    keys = agreed(Board(2, lambda turn, rank, said: value if (turn, rank) == (0, 1) else said), [b"", b""])
    assert isinstance(keys[0], UnavailableError)


def test_a_key_that_was_changed_on_its_way_is_refused():
    def change(turn, rank, said):
        return bytes([said[0] ^ 1]) + said[1:] if (turn, rank) == (1, 0) else said

    assert isinstance(agreed(Board(2, change), [b"", b""])[1], UnavailableError)
