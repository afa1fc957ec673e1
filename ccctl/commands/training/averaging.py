"""`ccctl training averaging`: which ranks average their parameters together (DS-Sync)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from ccctl import console
from ccctl.arguments import (
    FamilyOptions,
    GeneralOptions,
    Output,
    load_network,
    parse_racks,
    refuse_unknown,
    written_option,
)
from ccctl.artifacts import codec
from ccctl.completion import words
from ccctl.errors import DataError, UsageError
from ccctl.render import seconds
from probes.base import parse_size

if TYPE_CHECKING:
    from synth.groups import Groups, PatternName, Planned
    from synth.network import Network

__all__ = ["EXAMPLES", "averaging"]

EXAMPLES = (
    (
        "ccctl training averaging fat_tree:4x2/4 --bandwidth 20Gbit/s --alpha 20us --size 146M --compare",
        "two racks of four ranks behind one link each, beside rings, trees, parameter servers and gossip",
    ),
    (
        "ccctl training averaging fat_tree:4x2/4 --bandwidth 20Gbit/s --size 146M -o groups.json",
        "write the groups of each iteration",
    ),
    (
        "ccctl training averaging fat_tree:4x2/4 --bandwidth 10Gbit/s --previous groups.json"
        " --svg groups.svg",
        "the network measured again: groups change only where it has become uneven; draw them",
    ),
    (
        "ccctl training averaging switch:6 --bandwidth 10GB/s --racks 0-1/2-3/4-5 -o - | ccctl verify -",
        "racks of two, which never agree by the paper's pattern, get another",
    ),
)

# Larger numbers are typing errors, which are refused before they cost time and memory.
_MOST_PERIOD = 4096
_MOST_LAYERS = 1 << 20


@dataclass(frozen=True)
class AveragingOptions(GeneralOptions, FamilyOptions):
    """The arguments and options of ``averaging``."""

    network: Annotated[
        str,
        typer.Argument(
            metavar="NETWORK|PROFILE",
            autocompletion=words.networks,
            help="The network: a profile, topology, links.csv, or name, as for ccctl synth; a family such as "
            "fat_tree:4x2 needs --bandwidth.",
        ),
    ]
    racks: Annotated[
        str | None,
        typer.Option(
            "--racks",
            metavar="RANKS/…",
            help="Ranks of each rack, 0-3/4-7, or its hosts, gpu[1-4]/gpu[5-8]. [found from the links]",
        ),
    ] = None
    size: Annotated[
        str | None, typer.Option("--size", metavar="SIZE", help="Size of the parameters. [100M]")
    ] = None
    layers: Annotated[
        int | None,
        typer.Option(
            "--layers",
            metavar="L",
            min=1,
            max=_MOST_LAYERS,
            help="Number of messages in which they are averaged. [1]",
        ),
    ] = None
    period: Annotated[
        int | None,
        typer.Option(
            "--period",
            metavar="N",
            min=1,
            max=_MOST_PERIOD,
            help="Number of iterations after which the groups repeat. [the pattern's own]",
        ),
    ] = None
    pattern: Annotated[
        str | None,
        typer.Option(
            "--pattern",
            metavar="NAME",
            autocompletion=words.one_of(*words.PATTERNS),
            help="representatives, alternating, butterfly or mixed_radix. [representatives, the paper's; "
            "the fastest, if ranks never agree by it or it is one group of all ranks]",
        ),
    ] = None
    compare: Annotated[
        bool, typer.Option("--compare", help="Also predict other patterns and other ways to synchronize.")
    ] = False
    previous: Annotated[
        str | None,
        typer.Option(
            "--previous",
            metavar="FILE",
            help="Groups in use, which change only if bandwidth has changed.",
        ),
    ] = None
    svg: Annotated[
        str | None, written_option("--svg", help="Draw the groups of each iteration; - is stdout.")
    ] = None
    output: Output = None


def averaging(options: AveragingOptions) -> None:
    """Plan which ranks average parameters together, as in DS-Sync.

    Instead of one group of all ranks there are small groups at the same time: the ranks of a rack, and one
    representative of each rack, another one in each iteration. The representative of a slow rack averages
    with one other; a rank with a slow NIC stays in its rack, in a group of two. The output gives the
    predicted time, and rho, the factor by which the ranks' differences shrink in a period. Groups by which
    ranks never agree (rho = 1) are refused if you asked for them, and replaced otherwise.
    """
    if options.svg == "-" and options.output == "-":
        raise UsageError("--svg - and -o -: one of them to stdout")
    loaded, digests = load_network(options.network, options.alpha, options.bandwidth)
    if options.previous is None:
        found = _planned(loaded, options)
    else:
        new = ("racks", "size", "layers", "period", "pattern")
        if wrong := [f"--{name}" for name in new if getattr(options, name) is not None]:
            raise UsageError(f"{' and '.join(wrong)}: only for new groups; --previous has its own")
        found, digests["groups"] = _adjusted(options.previous, loaded)
    _refuse_wrong(found)
    _tell(found, options)
    if options.pattern is None and options.previous is None and not options.json:
        _tell_faster(found.groups)
    if options.output is not None:
        codec.write(options.output, "groups", found.groups, digests)
    console.next_with(options.output, "ccctl verify {}", "groups.json")


def _tell(found: Planned, options: AveragingOptions) -> None:
    """Draw the groups if asked for, and print them unless stdout takes a file or picture."""
    from ccctl.render.text import groups as text

    for remark in found.remarks:
        console.doubt(remark)
    if options.previous is not None and not found.changed:
        console.note("bandwidth as before: the groups stay")
    if options.svg is not None:
        from ccctl.render.svg import draw, write_pictures

        write_pictures(draw("groups", found.groups), options.svg)
    if "-" in (options.output, options.svg):
        return
    if options.json:
        values = text.summary(found.groups, compare=options.compare)
        changed = {} if options.previous is None else {"changed": found.changed}
        console.summary(values | changed | {"findings": list(found.remarks)})
        return
    say = console.data if options.output is None else console.note
    text.draw(found.groups, say=say, compare=options.compare)


def _tell_faster(groups: Groups) -> None:
    """Name the patterns that take less time an iteration than the chosen pattern."""
    from ccctl.render.text import groups as text

    for name, pattern in text.faster_patterns(groups).items():
        console.note(
            f"--pattern {name} takes less time an iteration, {seconds(pattern['predicted_s'])}; rho an "
            f"iteration is {pattern['rho_an_iteration']:.4g} instead of "
            f"{groups.rho ** (1 / groups.period):.4g}"
        )


def _planned(network: Network, options: AveragingOptions) -> Planned:
    from synth.groups import PATTERNS, plan_groups

    if options.pattern is not None:
        refuse_unknown("--pattern", options.pattern, PATTERNS)
    named: PatternName | None = next((name for name in PATTERNS if name == options.pattern), None)
    return plan_groups(
        network,
        parse_size(options.size or "100M", "--size"),
        racks=parse_racks(options.racks, network) if options.racks is not None else None,
        layers=options.layers or 1,
        period=options.period,
        pattern=named,
    )


def _adjusted(previous: str, network: Network) -> tuple[Planned, str]:
    from synth.check import examine_groups
    from synth.groups import adjust_groups

    read = codec.read(previous, "groups")
    if findings := examine_groups(read.body).findings:
        raise DataError(previous, list(findings))
    return adjust_groups(read.body, network), read.sha256


def _refuse_wrong(found: Planned) -> None:
    """Raise NotProvenError if the checker finds a problem in the groups."""
    from synth.check import examine_groups
    from synth.errors import NotProvenError

    if findings := [*found.groups.problems(), *examine_groups(found.groups).findings]:
        raise NotProvenError(findings)
