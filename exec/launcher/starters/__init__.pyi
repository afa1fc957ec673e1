from . import agents as agents, mpirun as mpirun
from .allocation import other_nodes as other_nodes
from .environment import variables as variables
from .order_files import (
    FORMATS as FORMATS,
    PlacedHost as PlacedHost,
    keeps_slots as keeps_slots,
    order_file as order_file,
)
from .spares import spares_of as spares_of
from .starter import Starter as Starter
