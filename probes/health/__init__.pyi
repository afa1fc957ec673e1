from .model import (
    ClusterHealth as ClusterHealth,
    GpuHealth as GpuHealth,
    HostHealth as HostHealth,
    HostProblem as HostProblem,
    KernelEvent as KernelEvent,
    NicHealth as NicHealth,
)
from .smi import gpus_of as gpus_of, versions_of as versions_of
