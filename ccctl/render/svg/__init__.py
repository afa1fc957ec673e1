"""Pictures as SVG, by kind of artifact: `ccctl show -o` writes them, the page of `ccctl report` shows them.

In: an artifact and a width in pixels. Out: `drawing.Drawing`. Read `drawing`, `axes`, then `chart` for
lines and `lanes` for bars, timelines and matrices, then a kind of artifact. `files` finds the pictures of a
kind, and writes them.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
