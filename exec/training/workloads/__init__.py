"""Small training runs that compare methods to synchronize replicas (`ccctl training compare`).

In: a `TrainRequest`. Out: a `TrainingReport`: losses, accuracy, iteration times, bytes on the wire, and
whether replicas are equal.

Read `request`, `examples` and `report`, which need no torch; `models` and `data`; `replicas`, with one for
each method; `loop`, which trains them in turn; `elastic_loop`, in which ranks may be lost; `join`, by which
ranks enter torch.distributed; and `traffic`, which counts sent bytes.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
