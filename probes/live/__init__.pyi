from . import recorded as recorded, system as system
from .cuda import cuda_errors as cuda_errors, cupy_module as cupy_module, gpu_count as gpu_count
from .cuda_copies import CudaCopies as CudaCopies
from .cuda_links import CudaEnd as CudaEnd, DeviceChoice as DeviceChoice, cuda_end as cuda_end
from .each_machine import first_ranks as first_ranks, merged_up_a_tree as merged_up_a_tree
from .host_identity import host_key as host_key
from .loopback import SocketLoopback as SocketLoopback
from .memory import (
    Need as Need,
    refuse_crowding as refuse_crowding,
    require_room as require_room,
    rooms as rooms,
)
from .memory_timing import memory_speed as memory_speed
from .mpi_library import library_name as library_name
from .process_memory import read_process as read_process
