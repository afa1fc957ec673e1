"""NVIDIA's management library (NVML): GPUs, NVLinks and pairs of GPUs, live or recorded."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
