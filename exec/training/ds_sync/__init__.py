"""DS-Sync on ranks that train: parameters averaged in small groups that change each iteration (Sec. III).

In: a model, its optimizer and the groups that `synth.groups` plans. Out: `wrapper.DSSync`, a module that is
trained as the model is. Read `planning` (which groups), `slow_links` (what has become slow), then what needs
torch: `buckets` (parameters that are averaged in one message), `partial_steps` (an optimizer that steps
behind backward), `communication` (process groups, and what was recorded), `adjustment`, and `wrapper`.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
