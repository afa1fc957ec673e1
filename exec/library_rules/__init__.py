"""Tuning of other libraries: the fastest of a library's algorithms for each size, and files that select it.

In: times of the library, measured on ranks here (Open MPI, MPICH), by nccl-tests elsewhere (NCCL, RCCL), or
by the OSU benchmarks (UCC).
Out: rules from size to algorithm, and files that the unmodified library loads. Read in this order:

- ``choice``: times and their noise → rules; the size to measure next.
- ``sweep``: the measurement on ranks, at few sizes first, then where the choice changes.
- The files: ``openmpi`` (dynamic rules), ``mpich`` (selection table), ``nccl`` (tuner files of NCCL and
  RCCL), ``ncclx`` (tuner files of NCCLX), ``ucc`` (configuration of UCC); ``files`` makes them from measured
  times.
- ``stock_nccl``: the files that an unmodified NCCL can load for a network, each with its predicted gain.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
