"""Count the calls between packages while a command runs: how far a request travels through the house.

Prints, for each command, how many modules and packages it entered, the distinct ways from one package into
another, those of them that climb (into a package of a higher floor, or of a higher layer of the same floor as
`[tool.importlinter]` lists them), and how often a package was entered that had been left before. An import is
no call, nor is taking the next item of an iterator that was handed over.

    python -P benchmarks/package_trips.py [synth] [bench] [profile] [--ways]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import tomllib
from collections import Counter
from inspect import CO_GENERATOR
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[1]
FLOORS = ("probes", "synth", "exec", "ccctl")
COMMANDS = {
    "synth": "synth --network torus:4x4 --bandwidth 50GB/s --collective all_reduce --size 16M -o OUT/s.json",
    "bench": "bench -n 2 --collective all_reduce --sizes 64K -o OUT/b.json",
    "profile": "profile -n 2 --quick -o OUT/p.json",
}


def package_of(module: str) -> str:
    """Return the package of a module; the modules at the root of a floor stand for themselves."""
    parts = module.split(".")
    return module if len(parts) < 3 else ".".join(parts[:2])


def heights() -> dict[str, int]:
    """Return how high each package and module stands: floor first, then layer."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    found = {}
    for contract in contracts:
        for floor in contract.get("containers", ()):
            if floor in FLOORS:
                for depth, layer in enumerate(reversed(contract["layers"])):
                    for name in layer.split("|"):
                        found[f"{floor}.{name.strip()}"] = 1000 * FLOORS.index(floor) + depth
    return found


class Trip:
    """The calls between packages of one run."""

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self.ways: Counter[tuple[str, str]] = Counter()
        self.left: Counter[str] = Counter()
        self._seen: set[str] = set()

    def note(self, frame: FrameType, event: str, _argument: Any) -> None:
        """Note a call whose caller stands in another package; a profile function of ``sys.setprofile``."""
        code = frame.f_code
        if event != "call" or code.co_name in ("<module>", "__getattr__") or code.co_flags & CO_GENERATOR:
            return
        here = frame.f_globals.get("__name__", "")
        caller = frame.f_back
        # A call that passes through a library counts as one by the library's caller.
        while caller is not None and caller.f_globals.get("__name__", "").split(".")[0] not in FLOORS:
            if caller.f_globals.get("__name__", "").startswith("importlib."):
                return
            caller = caller.f_back
        if here.split(".")[0] not in FLOORS or caller is None:
            return
        there = package_of(caller.f_globals["__name__"])
        self.modules.add(here)
        if (into := package_of(here)) != there:
            self.ways[there, into] += 1
            self.left[into] += into in self._seen
            self._seen.add(into)


def traced(words: list[str]) -> Trip:
    """Run a command in this process and return its trip."""
    from ccctl.main import main

    trip = Trip()
    sys.argv = ["ccctl", *words]
    threading.setprofile(trip.note)
    sys.setprofile(trip.note)
    try:
        main()
    except SystemExit as leaving:
        if leaving.code:
            raise
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type] # None takes it away
    return trip


def report() -> None:
    """Print the trip of each command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[*COMMANDS])
    parser.add_argument("--ways", action="store_true", help="List the ways that climb.")
    asked = parser.parse_args()
    height = heights()
    with tempfile.TemporaryDirectory() as folder:
        for name in asked.names:
            trip = traced(COMMANDS[name].replace("OUT", folder).split())
            rooms = {into for _, into in trip.ways}
            climbs = [way for way in trip.ways if height.get(way[1], 0) > height.get(way[0], 1 << 20)]
            print(
                f"{name:8} {len(trip.modules):4} modules {len(rooms):4} packages {len(trip.ways):5} ways "
                f"{len(climbs):4} climb {sum(trip.left.values()):7} returns"
            )
            if asked.ways:
                print(*(f"    {a} -> {b}" for a, b in climbs), sep="\n")


if __name__ == "__main__":
    report()
