"""Tree packing: spanning trees and arborescences that together use the full rates of the links.

In: a network and roots. Out: trees with their rates; the `integral_` modules give integer multiples of a
unit.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
