from .group_rendezvous import (
    Shutdown as Shutdown,
    Word as Word,
    exchange_through as exchange_through,
    hear_rank_0 as hear_rank_0,
    rendezvous as rendezvous,
)
from .known_schedules import KnownSchedules as KnownSchedules
from .launcher_rendezvous import meet as meet
from .planned_collectives import shared as shared
from .process_group import (
    LEAST_BYTES as LEAST_BYTES,
    PREFERENCES as PREFERENCES,
    Settings as Settings,
    TorchGroup as TorchGroup,
)
from .tensors import REDUCIBLE as REDUCIBLE, array_of as array_of, bytes_of as bytes_of
