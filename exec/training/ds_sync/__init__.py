"""DS-Sync for PyTorch: parameters are averaged in small groups that change each iteration (Sec. III).

In: a model, its optimizer and the groups that `synth.groups` plans. Out: `wrapper.DivideAndShuffle`, a module
that is trained like the model. Read `planning` (the choice of groups), `slow_links` (detection of slow
links), then the modules that need torch: `buckets` (parameters averaged in one message), `partial_steps`
(optimizer steps during the backward pass), `communication` (process groups, and records), `adjustment`, and
`wrapper`.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
