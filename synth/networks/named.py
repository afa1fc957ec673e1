"""Networks made from a name: their symmetry is known, and large ones list their links only on demand.

A schedule for thousands of equivalent ranks needs only one link of each orbit (`synth.networks.symmetric`).
Listing all links would take longer than planning, or more memory than there is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

from synth.network import Network
from synth.networks.symmetric import SymmetricNetwork
from synth.networks.translations import found_symmetry

__all__ = ["NamedNetwork", "named_network", "symmetry_of"]

# A network of up to this many ranks lists all its links when it is made.
_MOST_RANKS = 1 << 10
_GIVEN = ("name", "hosts", "hold_alpha", "multiprocessors", "multimem_s_per_byte")
_COLUMNS = tuple(field.name for field in fields(Network) if field.name not in _GIVEN)


class NamedNetwork(Network):
    """A network made from a name; a copy that `dataclasses.replace` makes loses the known translations."""

    def __getattr__(self, name: str) -> Any:
        if name not in _COLUMNS or "_listing" not in vars(self):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        listed = vars(self)["_listing"]()
        vars(self).update({column: getattr(listed, column) for column in _COLUMNS})
        return vars(self)[name]

    @property
    def symmetry(self) -> SymmetricNetwork | None:
        """The network with one link of each orbit under its translations; None if none is known."""
        if "_symmetry" not in vars(self):
            folding = vars(self).get("_folding")
            vars(self)["_symmetry"] = folding() if folding else None
        found: SymmetricNetwork | None = vars(self)["_symmetry"]
        return found

    def problems(self) -> list[str]:
        """Return all inconsistencies, as ``path: problem``; check unlisted links once per orbit."""
        symmetry = None if "src" in vars(self) else self.symmetry
        return super().problems() if symmetry is None else symmetry.problems()


def named_network(
    name: str,
    hosts: Sequence[str],
    listing: Callable[[], Network],
    folding: Callable[[], SymmetricNetwork | None] | None,
    *,
    hold_alpha: bool = False,
    multiprocessors: int = 0,
    multimem_s_per_byte: float = 0.0,
) -> Network:
    """Return the network that ``listing`` makes; ``folding`` makes its symmetric form, None if it has none.

    Both must be picklable, because worker processes get the network. With more than 1024
    ranks and a symmetric form, ``listing`` is called only when a link is first needed.
    """
    made = object.__new__(NamedNetwork)
    vars(made).update(
        name=name,
        hosts=tuple(hosts),
        hold_alpha=hold_alpha,
        multiprocessors=multiprocessors,
        multimem_s_per_byte=multimem_s_per_byte,
        _listing=listing,
        _folding=folding,
    )
    if len(hosts) <= _MOST_RANKS or made.symmetry is None:
        _ = made.src
    else:
        vars(made).update(links=made.symmetry.links)
    return made


def symmetry_of(network: Network) -> SymmetricNetwork | None:
    """Return the network with one link of each orbit; None if no translations are found."""
    if isinstance(network, NamedNetwork) and network.symmetry is not None:
        return network.symmetry
    found = found_symmetry(network)
    return None if found is None else found.network
