"""ccctl: from bare wires to the collectives that they can carry best.

This package is the command line, the top layer: it reads and writes artifacts, prints, and exits. ``load``
and ``save`` are for programs that use the three layers below it as libraries: ``probes``, ``synth`` and
``exec``.

Read `main` and `commands`, one module a command; `arguments`, which parses option values; `artifacts`, the
files; `render`, which makes text, objects and pictures; `console`, the only module that prints.
"""

import lazy_loader as lazy

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
