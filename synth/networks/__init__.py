"""Networks: the families by name, networks of a measured profile, and parts of networks.

In: a name such as ``torus:4x4``, a topology or a profile. Out: `synth.network.Network`. Read `families`,
`nominal`, `measured`; `failures` and `subnetwork` remove ranks and links.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
