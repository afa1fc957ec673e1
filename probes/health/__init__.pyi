from .alike import differences as differences
from .environment import (
    default_interface as default_interface,
    environment as environment,
    nic_of_gpus as nic_of_gpus,
    source_file as source_file,
)
from .gpu_load import pcie_load as pcie_load
from .gpu_rules import gpu_problems as gpu_problems
from .gpus import read_gpus as read_gpus, with_pci_tree as with_pci_tree
from .groups import (
    HealthGroups as HealthGroups,
    cluster_health as cluster_health,
    group_of as group_of,
    merged_groups as merged_groups,
)
from .host import read_host as read_host, read_ports as read_ports
from .kernel_log import kernel_events as kernel_events
from .model import (
    ClusterHealth as ClusterHealth,
    CpuLimit as CpuLimit,
    GpuHealth as GpuHealth,
    HostHealth as HostHealth,
    HostProblem as HostProblem,
    KernelEvent as KernelEvent,
    NicHealth as NicHealth,
)
from .nics import regrown as regrown
from .peers import missing_peers as missing_peers, peer_problems as peer_problems
from .rules import host_problems as host_problems
from .task import HealthRequest as HealthRequest, health_task as health_task
