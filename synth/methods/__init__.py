"""Methods: one algorithm per file, each with ``synthesize(network, collective, chunk_bytes, *, seed, …)``.

In: a collective on a network. Out: a `Schedule`, or NotApplicableError if the algorithm does not serve the
collective. Methods do not check their schedules; `synth.check` does. The registry is
`synth.portfolio.attempts`.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
