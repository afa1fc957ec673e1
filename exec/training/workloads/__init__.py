"""Training runs of `ccctl training compare`, with each method to synchronize replicas.

In: a `TrainRequest`. Out: a `TrainingReport`: losses, accuracy, iteration times, bytes on the wire, equality.

Read `request` and `report`, which need no torch; then `models` and `data`; `replicas`, one per method;
`loop`, which trains them in turn, and `elastic_loop`, where ranks may be lost; `join` and `traffic`, how
ranks meet and how much they have sent.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
