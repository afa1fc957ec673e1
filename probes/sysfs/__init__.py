"""Reader of Linux's own files: PCI devices, NUMA nodes, network interfaces, GPUs of amdgpu, CPUs."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
