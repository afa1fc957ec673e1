"""List the flags in the kernels' PTX with their order and scope, for each architecture and protocol.

A row is an instruction that another thread, GPU or the host sees, with the number of places at which the
kernels have it on each architecture. The last row of a protocol says what is wrong: an order or scope that
its peer does not get, or a line that is stored in parts. Needs NVRTC, no driver.

    python -P benchmarks/ptx_flags.py [--architectures 70,75,80,86,89,90,100]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests" / "helpers"))
from flags_in_ptx import ARCHITECTURES, findings, instructions, ptx_of, told  # noqa: E402 - those of the tests

PROTOCOLS = ("Simple", "LL", "LL128")
# The oldest architecture whose GPUs have multimem.
_WITH_SWITCHES = 90


def main() -> int:
    """Print the lists; return 1 if a flag is wrong."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--architectures", default=",".join(map(str, ARCHITECTURES)))
    asked = [int(number) for number in options.parse_args().architectures.split(",")]
    wrong = sum(_list(by, asked) for by in PROTOCOLS)
    switches = [number for number in asked if number >= _WITH_SWITCHES]
    return int(wrong + (_list("Simple", switches, multimem=True) if switches else 0) > 0)


def _list(by: str, architectures: list[int], *, multimem: bool = False) -> int:
    """Print the list of a protocol; return how many findings there are."""
    every = {number: instructions(ptx_of(number, by, multimem=multimem)) for number in architectures}
    names = sorted({name for found in every.values() for name in found if told(name)})
    places = " ".join(f"{f'sm_{number}':>6}" for number in architectures)
    print(f"{by + (', with switches' if multimem else ''):50} {'order':8} {'scope':7} {places}  for")
    for name in names:
        purpose, order, scope = told(name)
        counts = " ".join(f"{found[name]:6}" for found in every.values())
        print(f"  {name:48} {order:8} {scope:7} {counts}  {purpose}")
    # The aliases' fences stand only beside what a switch does.
    wrong = [
        f"sm_{number}: {line}"
        for number, found in every.items()
        for line in findings(found, by)
        if not (multimem and line == "fence.proxy.alias")
    ]
    print(f"  wrong: {'; '.join(wrong) or 'nothing'}\n", flush=True)
    return len(wrong)


if __name__ == "__main__":
    sys.exit(main())
