"""Waits for cores: a link is starved if an end waited in every look at it."""

import pytest

from probes.sampling import Samples


@pytest.mark.parametrize(
    ("sender", "receiver", "starved"),
    [
        ([], [], False),
        ([0.0], [0.1], False),
        ([0.0], [0.5], True),
        ([0.5, 0.0], [0.0, 0.0], False),
        ([0.5, 0.0], [0.0, 0.4], True),
    ],
)
def test_one_look_without_a_wait_is_enough(sender, receiver, starved):
    found = Samples()
    for at, share in enumerate(sender):
        found.add(Samples(sender_waited={(0, 1): [share]}, receiver_waited={(0, 1): [receiver[at]]}))
    assert found.starved((0, 1)) == starved
    assert not found.starved((1, 0))
