from .compile import architectures as architectures
from .device import Device as Device, Kernels as Kernels, gpus as gpus
from .elements import require_switch_sum as require_switch_sum
from .encode import (
    BLOCK as BLOCK,
    SPARE_SLOTS as SPARE_SLOTS,
    Encoded as Encoded,
    WireProtocol as WireProtocol,
    encoded as encoded,
    tile_bytes_for as tile_bytes_for,
    wire_protocol_of as wire_protocol_of,
)
from .fifo_memory import Arenas as Arenas, arenas as arenas
from .launch import Interpreter as Interpreter, divide_sums as divide_sums
from .proxies import Proxy as Proxy, RemoteFifos as RemoteFifos
from .rows import DOES as DOES, STEP as STEP
from .source import THREADS as THREADS
