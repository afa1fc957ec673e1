from . import nodeset as nodeset, protocol as protocol, run as run, run_folders as run_folders
from .attached import own_rank as own_rank
from .ending import Ending as Ending
from .nodeset import MOST_RANKS as MOST_RANKS, HostSlots as HostSlots, fold as fold, parse as parse
from .protocol import START as START, Heartbeat as Heartbeat, Lost as Lost, Wires as Wires
from .run import World as World, launch as launch, started_by_mpi as started_by_mpi
from .signals import hear_interrupts as hear_interrupts, told_to_end as told_to_end, unwinding as unwinding
