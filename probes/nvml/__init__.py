"""NVIDIA's management library: GPUs, NVLinks and pairs of GPUs, live or recorded."""
