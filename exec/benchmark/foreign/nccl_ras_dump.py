"""The content of a dump of NCCL's RAS: communicators, their ranks, the collectives that each has begun."""

from __future__ import annotations

import msgspec

__all__ = ["IN_PROGRESS", "Communicator", "Dump", "RasRank", "RasStatus"]

# ncclInProgress
IN_PROGRESS = 7


class RasStatus(msgspec.Struct):
    """The state of a rank; errors are those of ncclResult_t."""

    init_state: int = 0
    async_error: int = 0
    abort_flag: bool = False
    unresponsive: bool = False
    considered_dead: bool = False


class RasRank(msgspec.Struct):
    """A rank of a communicator, and the collectives of each kind that it has begun."""

    rank: int
    host: str = ""
    pid: int = 0
    status: RasStatus = msgspec.field(default_factory=RasStatus)
    collective_counts: dict[str, int] = {}


class Communicator(msgspec.Struct):
    """A communicator of ``size`` ranks; ``most`` has the highest counts of ranks that are not named."""

    hash: str
    size: int
    ranks: list[RasRank] = []
    missing_ranks: list[RasRank] = []
    secondary_hash: str = ""
    most: dict[str, int] = {}


class Dump(msgspec.Struct):
    """One answer of RAS."""

    communicators: list[Communicator]
    timestamp: str = ""
    nccl_version: str = ""
