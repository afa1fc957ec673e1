"""The output of commands: rows as they arrive, and the ``--json`` object."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
