from . import mpirun as mpirun, starter as starter
from .agents import Agents as Agents
from .order_files import (
    FORMATS as FORMATS,
    PlacedHost as PlacedHost,
    keeps_slots as keeps_slots,
    order_file as order_file,
)
from .remote import other_nodes as other_nodes
from .starter import Starter as Starter, variables as variables
