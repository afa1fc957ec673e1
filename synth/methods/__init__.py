"""Methods: one algorithm a file, each with ``synthesize(network, collective, chunk_bytes, *, seed, …)``.

In: a whole collective on a network. Out: a `Schedule`, or NotApplicableError where the algorithm does not
serve it. Nobody here is believed: `synth.check` judges what comes out. The registry is
`synth.portfolio.attempts`.
"""
