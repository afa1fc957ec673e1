# GPUs.
from .environment import (
    default_interface as default_interface,
    environment as environment,
    nic_of_gpus as nic_of_gpus,
    source_file as source_file,
)
from .gpu_load import pcie_load as pcie_load
from .gpu_rules import gpu_problems as gpu_problems
from .gpus import read_gpus as read_gpus, with_pci_tree as with_pci_tree
from .model import (
    ClusterHealth as ClusterHealth,
    GpuHealth as GpuHealth,
    HostHealth as HostHealth,
    HostProblem as HostProblem,
    KernelEvent as KernelEvent,
    NicHealth as NicHealth,
)
from .peers import missing_peers as missing_peers, peer_problems as peer_problems
