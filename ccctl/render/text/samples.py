"""Raw samples of links as text: for each quantity the number of samples and of links."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ccctl import console
from probes.base import plural

if TYPE_CHECKING:
    from probes.profiling import RawSamples

__all__ = ["draw"]

# Names of the values of ``RawSamples.quantity``.
_QUANTITIES = ("round trips", "messages back to back", "messages back to back, no other link measured")


def draw(samples: RawSamples) -> None:
    """Print a table of the samples by quantity."""
    runs = plural(len(np.unique(samples.run)), "measurement")
    console.data(f"{plural(len(samples.seconds), 'sample')} of {runs}")
    rows = []
    for number, name in enumerate(_QUANTITIES):
        mine = samples.quantity == number
        links = np.unique(np.stack([samples.src[mine], samples.dst[mine]]), axis=1).shape[1]
        rows.append([name, str(int(mine.sum())), str(links)])
    console.table(["kind", "samples", "links"], rows)
