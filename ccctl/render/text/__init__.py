"""Results of commands and artifacts as text and as the object of ``--json``: one module for each."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
