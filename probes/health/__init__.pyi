from .alike import (
    Digest as Digest,
    differences as differences,
    differences_of as differences_of,
    digest as digest,
    merged as merged,
)
from .host import read_host as read_host, read_ports as read_ports
from .kernel_log import kernel_events as kernel_events
from .model import (
    ClusterHealth as ClusterHealth,
    GpuHealth as GpuHealth,
    HostHealth as HostHealth,
    HostProblem as HostProblem,
    KernelEvent as KernelEvent,
    NicHealth as NicHealth,
)
from .nics import regrown as regrown
from .rules import host_problems as host_problems
from .task import (
    HealthRequest as HealthRequest,
    HostReading as HostReading,
    cluster_health as cluster_health,
    health_task as health_task,
)
