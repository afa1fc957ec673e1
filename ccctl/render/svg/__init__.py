"""Pictures as SVG, by kind of artifact: `ccctl show -o` writes them, the page of `ccctl report` shows them.

In: an artifact's value and a width in pixels. Out: `drawing.Drawing`. Read `drawing`, `chart`, `bar_chart`,
then a kind. `files` writes them, as SVG or PNG.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
