"""An acceptance test of a cluster, from the detection of its hosts to the files with the verdict.

In: a world of ranks, and the terms of the acceptance. Out: a folder with the measurements, the certificate
and all that is made of it. Read `folder`, `request`, `run`, `outputs`, `recheck`.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
