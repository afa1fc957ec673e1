"""Completion in bash, zsh and fish: the scripts of the shells, and ccctl's answers to them.

In: the line up to the cursor. Out: the words that may follow, one a line. Read `scripts`, `answers`, then
`words`, which has the values of options. These modules load nothing heavy, because a shell waits for the
answer.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
