"""Ranks that come later are numbered after the others, and expected on the hosts that were named for them."""

import socket

import pytest

from exec.launcher.nodeset import HostSlots
from exec.launcher.run import World, run_ranks
from exec.launcher.session import spares_of
from probes.base.errors import UsageError


def test_spares_follow_the_ranks_and_know_who_else_is_on_their_host():
    where = (HostSlots("a", 2), HostSlots("b", 1))
    expected, hosts = spares_of(3, where, (HostSlots("b", 1), HostSlots("c", 2)))
    assert [(one.rank, one.host, one.name) for one in expected] == [(3, 2, "b"), (4, 4, "c"), (5, 4, "c")]
    assert {one.key for one in expected} == {""}
    assert {rank: entry.host for rank, entry in hosts.items()} == {3: "b", 4: "c", 5: "c"}


@pytest.mark.parametrize("where", [(), (HostSlots("localhost", 2),)])
def test_a_spare_of_this_host_is_with_the_ranks_here_however_it_is_called(where):
    expected, _ = spares_of(2, where, (HostSlots("localhost", 1), HostSlots(socket.gethostname(), 1)))
    assert [(one.rank, one.host, one.name) for one in expected] == [
        (2, 0, socket.gethostname()),
        (3, 0, socket.gethostname()),
    ]


def test_a_run_that_does_not_survive_losses_does_not_grow():
    with pytest.raises(UsageError, match="spare: only a run that survives"):
        run_ranks("exec.launcher.selftest:hello", None, World(2, spare="b"), wires="sockets")


def test_hosts_that_cannot_be_read_are_named_as_spares():
    with pytest.raises(UsageError, match=r"^spare: a \["):
        World(2, spare="b[1").spares()
