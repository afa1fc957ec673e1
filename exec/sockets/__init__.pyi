from .channel import BrokenMessage as BrokenMessage, Channel as Channel, key_of_wires as key_of_wires
from .greeter import Greeter as Greeter
from .group import Group as Group, join as join, rejoin as rejoin
from .key_agreement import agree as agree
from .listeners import (
    interface_of as interface_of,
    listen as listen,
    own_addresses_towards as own_addresses_towards,
    published as published,
)
from .mesh import Exchange as Exchange, Meeting as Meeting, Whereabouts as Whereabouts
from .reach import first_to_answer as first_to_answer
from .tcp_ends import FAILED as FAILED, NOTHING as NOTHING, serve_ends as serve_ends
from .ucx import active_devices as active_devices, carries_data as carries_data, library as library
from .wires import FlowWires as FlowWires
