"""Networks by name: they know their translations, and of many ranks list links only when one is asked for.

On thousands of ranks that are all alike a schedule needs one link of each orbit. Listing all would take
longer than planning, or more memory than there is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

from synth.network import Network
from synth.networks.symmetric import SymmetricNetwork
from synth.networks.translations import found_symmetry

__all__ = ["NamedNetwork", "named_network", "symmetry_of"]

# Up to so many ranks all links are listed at once.
_MOST_RANKS = 1 << 10
_COLUMNS = tuple(field.name for field in fields(Network) if field.name not in ("name", "hosts", "hold_alpha"))


class NamedNetwork(Network):
    """A network that a name stands for; a changed copy of it is one that nobody knows more of."""

    def __getattr__(self, name: str) -> Any:
        if name not in _COLUMNS or "_listing" not in vars(self):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        listed = vars(self)["_listing"]()
        vars(self).update({column: getattr(listed, column) for column in _COLUMNS})
        return vars(self)[name]

    @property
    def symmetry(self) -> SymmetricNetwork | None:
        """The network with one link of each orbit under its translations; None where none is known."""
        if "_symmetry" not in vars(self):
            folding = vars(self).get("_folding")
            vars(self)["_symmetry"] = folding() if folding else None
        found: SymmetricNetwork | None = vars(self)["_symmetry"]
        return found

    @property
    def links(self) -> int:
        """How many links there are, listed or not."""
        return len(self.src) if "src" in vars(self) or self.symmetry is None else self.symmetry.links

    def problems(self) -> list[str]:
        """Every inconsistency, as ``path: what is wrong``; where no links are listed of one of each orbit."""
        symmetry = None if "src" in vars(self) else self.symmetry
        return super().problems() if symmetry is None else symmetry.problems()


def named_network(
    name: str,
    hosts: Sequence[str],
    listing: Callable[[], Network],
    folding: Callable[[], SymmetricNetwork | None],
    *,
    hold_alpha: bool = False,
) -> Network:
    """The network that ``listing`` makes, with the translations that ``folding`` knows.

    Of many ranks, if there are translations, ``listing`` is called when a link is first asked for.
    """
    made = object.__new__(NamedNetwork)
    vars(made).update(
        name=name, hosts=tuple(hosts), hold_alpha=hold_alpha, _listing=listing, _folding=folding
    )
    if len(hosts) <= _MOST_RANKS or made.symmetry is None:
        _ = made.src
    return made


def symmetry_of(network: Network) -> SymmetricNetwork | None:
    """The network with one link of each orbit: as its name tells, or as its links show; None without any."""
    if isinstance(network, NamedNetwork) and network.symmetry is not None:
        return network.symmetry
    found = found_symmetry(network)
    return None if found is None else found.network
