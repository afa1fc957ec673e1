"""The lab: hosts as network namespaces of this machine, their links shaped by the kernel."""
