"""A communicator for tests of tasks that read each machine once."""


class OneOfSeveral:
    """The world of rank ``rank``, whose ranks are on these machines; None is this one.

    ``others`` are the values of the ranks from 1 on, and ``sent`` has what this rank sent to whom.
    """

    def __init__(self, rank, machines, others=()):
        self._rank, self._machines, self._others = rank, machines, others
        self.sent = []

    def Get_rank(self):  # noqa: N802 - MPI's own name
        return self._rank

    def allgather(self, mine):
        return [mine if machine is None else machine for machine in self._machines]

    def gather(self, value):
        return [value, *self._others] if self._rank == 0 else None

    def send(self, value, dest, tag=0):
        self.sent.append((value, dest))

    def recv(self, source, tag=0):
        return self._others[source - 1]
