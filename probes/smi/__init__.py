"""Readers of what ``nvidia-smi``, ``rocm-smi`` and ``amd-smi`` print.

In: the text of a matrix (``matrix``), the XML of a query (``query``), the tables or JSON of
AMD's tools (``rocm``). Out: a partial topology.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
