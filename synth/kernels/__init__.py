"""Compiled loops: the decorator, the store between processes, bitsets and event queues in NumPy arrays."""
