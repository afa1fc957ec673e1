"""This machine while we run on it: memory, affinity, loopback traffic, GPU copies, recordings."""
