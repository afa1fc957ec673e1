from .model import (
    ClusterHealth as ClusterHealth,
    GpuHealth as GpuHealth,
    HostHealth as HostHealth,
    HostProblem as HostProblem,
    KernelEvent as KernelEvent,
    NicHealth as NicHealth,
)
