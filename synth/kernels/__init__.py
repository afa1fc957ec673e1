"""Compiled loops: the decorator and its store; bitsets, event queues, a sort and copies of arrays."""

import os

import lazy_loader as lazy

from synth.kernels.numba_config import leave_file_unread

# This must precede numba's import: with colorama, numba would write an escape sequence to the terminal of
# every rank that ends, and mpirun gives each rank a terminal.
os.environ.setdefault("NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING", "1")
leave_file_unread()

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
