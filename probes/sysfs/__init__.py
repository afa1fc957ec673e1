"""Linux's own files: PCI devices, NUMA nodes, network interfaces, GPUs of amdgpu, CPUs."""
