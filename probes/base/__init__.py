"""What every package needs and no machine is: errors, columns of numbers, words, progress.

In: nothing of ccctl. Out: errors with hints, typed columns, text of others made visible, counts in words.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
