"""Helpers that do not depend on machines: errors, columns of numbers, wording, progress.

In: nothing of ccctl. Out: errors with hints, typed columns, foreign text made safe to show, counts in words.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
