"""Completion in bash, zsh and fish: the scripts of the shells, and what ccctl answers them.

In: the line up to the cursor. Out: what may follow, a line each. Read `scripts`, `answers`, then `words`,
from which options take their values; none of them loads anything heavy, as a shell waits for the answer.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
