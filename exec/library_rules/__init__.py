"""Which of a library's own algorithms is fastest for which sizes, and the tables that make it take them.

In go times of the library, measured on ranks here (Open MPI) or by nccl-tests elsewhere (NCCL, RCCL); out
come rules from size to algorithm, and the files that the unmodified libraries load. To be read in order:

- ``choice``: times with their noise → rules; which size to measure next.
- ``sweep``: the measurement on ranks, few sizes first, then where the choice changes.
- ``openmpi``: Open MPI's dynamic rules, read, merged, written; ``nccl``: tuner files of NCCL and RCCL;
  ``ncclx``: the same for NCCLX.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
