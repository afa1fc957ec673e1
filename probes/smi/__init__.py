"""Readers of the tables that ``nvidia-smi topo`` and ``rocm-smi --showtopo`` print."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
