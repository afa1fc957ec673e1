from .model import (
    ClusterHealth as ClusterHealth,
    GpuHealth as GpuHealth,
    HostHealth as HostHealth,
    HostProblem as HostProblem,
    KernelEvent as KernelEvent,
    NicHealth as NicHealth,
)

# GPUs.
from .gpu_load import pcie_load as pcie_load
from .gpus import limited_by_slots as limited_by_slots, read_gpus as read_gpus
