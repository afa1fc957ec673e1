"""The files for an unmodified NCCL as text, each with its expected gain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ccctl import console
from ccctl.render import Column, Say, figures, print_table
from probes.base import format_size

if TYPE_CHECKING:
    from exec.library_rules import StockFile, StockPlan

__all__ = ["draw", "summary"]

_MODEL = "rings and trees by NCCL's own model; NVLS, CollNet and PAT, which it may take, are not in it"
_BUILD = (
    "git clone https://github.com/NVIDIA/nccl",
    "make -C nccl/plugins/tuner/example",
)


def summary(plan: StockPlan) -> dict[str, Any]:
    """Return what ``--json`` prints."""
    return {
        "network": plan.network,
        "files": [figures(file, "name sets gain over") for file in plan.files],
        "choices": {
            kind: [figures(one, "size_bytes default best default_us best_us") for one in found]
            for kind, found in plan.tuning.choices.items()
        },
        "doubts": list(plan.doubts),
    }


def draw(plan: StockPlan, say: Say = console.data) -> None:
    """Print the files with their gains, and what has to be built for them."""
    for doubt in plan.doubts:
        console.doubt(doubt)
    changed = [one for one in plan.tuning.choices["all_reduce"] if one.best != one.default]
    if plan.files:
        print_table(_FILES, plan.files, say)
    elif not changed:
        print_table(_CHOICES[:3], plan.tuning.choices["all_reduce"], say)
        say(_MODEL)
        say(
            f"NCCL's own choices are best on {plan.network}: no order, graph, algorithm or protocol that it "
            "loads is 2 % faster"
        )
    names = [file.name for file in plan.files]
    if changed:
        if "hosts" in names:
            say("algorithms and protocols with the hosts in the order of the file hosts:")
        print_table(_CHOICES, changed, say)
        if len(changed) < len(plan.tuning.choices["all_reduce"]):
            say("sizes that are not listed: no setting is 2 % faster than NCCL's")
        say(_MODEL)
    if changed and "tuner.csv" not in names:
        say("without a tuner file: NCCL_ALGO and NCCL_PROTO set one of these for all sizes")
    if "tuner.csv" in names:
        say("NCCL's example plugin reads tuner.csv; to build it:")
        for line in _BUILD:
            say(f"  {line}")


def _gain(one: StockFile) -> str:
    return f"{one.gain:.2f}x as fast as {one.over}" if one.over else "-"


_FILES = (
    Column("file", "name"),
    Column("sets", "sets"),
    Column("expected gain", _gain),
)
_CHOICES = (
    Column("all_reduce", lambda one: format_size(one.size_bytes)),
    Column("NCCL takes", "default"),
    Column("its time", lambda one: f"{one.default_us:.1f} us"),
    Column("faster", "best"),
    Column("its time", lambda one: f"{one.best_us:.1f} us"),
    Column("gain", lambda one: f"{one.gain:.2f}x"),
)
