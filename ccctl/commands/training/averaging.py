"""`ccctl training averaging`: which ranks average their parameters together (DS-Sync)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ccctl import console
from ccctl.arguments import (
    Alpha,
    Bandwidth,
    Json,
    Output,
    Quiet,
    Verbose,
    load_network,
    parse_racks,
    parse_size,
)
from ccctl.artifacts import codec, refuse_unwritable
from ccctl.completion import words
from ccctl.errors import DataError, UsageError

if TYPE_CHECKING:
    from synth.groups import PatternName, Planned
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

_MOST_PERIOD = 4096
_MOST_LAYERS = 1 << 20

NetworkArgument = Annotated[
    str,
    typer.Argument(
        metavar="NETWORK|PROFILE",
        autocompletion=words.networks,
        help="A profile, topology, links.csv, family or machine, as for ccctl synth.",
    ),
]
RackList = Annotated[
    str | None,
    typer.Option(
        "--racks",
        metavar="RANKS/…",
        help="Ranks of each rack, 0-3/4-7, or its hosts, gpu[1-4]/gpu[5-8]; else they are found.",
    ),
]
Size = Annotated[str | None, typer.Option("--size", metavar="SIZE", help="Bytes of the parameters; 100M.")]
Layers = Annotated[
    int | None,
    typer.Option(
        "--layers", metavar="L", min=1, max=_MOST_LAYERS, help="Messages in which they are averaged; 1."
    ),
]
Period = Annotated[
    int | None,
    typer.Option(
        "--period", metavar="N", min=1, max=_MOST_PERIOD, help="Iterations until the pattern comes round."
    ),
]
Pattern = Annotated[
    str | None,
    typer.Option(
        "--pattern",
        metavar="NAME",
        autocompletion=words.one_of(*words.PATTERNS),
        help="representatives (the paper's), alternating, butterfly or mixed_radix; else one that agrees.",
    ),
]
Compare = Annotated[
    bool, typer.Option("--compare", help="Predict other patterns and other ways to synchronize, too.")
]
Previous = Annotated[
    str | None,
    typer.Option(
        "--previous",
        metavar="FILE",
        help="Groups that are in use: change them only if bandwidth has changed.",
    ),
]
Picture = Annotated[
    str | None, typer.Option("--svg", metavar="FILE", help="Draw the groups of each iteration; - is stdout.")
]


def averaging(
    network: NetworkArgument,
    alpha: Alpha = None,
    bandwidth: Bandwidth = None,
    racks: RackList = None,
    size: Size = None,
    layers: Layers = None,
    period: Period = None,
    pattern: Pattern = None,
    compare: Compare = False,
    previous: Previous = None,
    svg: Picture = None,
    json: Json = False,
    output: Output = None,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Plan which ranks average parameters together, as in DS-Sync.

    Ranks of a rack form a group, and a representative of each rack, by turns, an inter-rack group: small
    groups at once instead of one of all. A slow rack's representative averages with one other; a rank with
    a slow NIC stays in its rack, in a group of two. The report gives rho, the factor by which ranks come to
    agree in a period, and the predicted time. A pattern by which they never agree (rho = 1) is refused, or
    replaced where none was asked for.
    """
    if svg is not None and svg != "-":
        refuse_unwritable(Path(svg))
    if svg == "-" and output == "-":
        raise UsageError("--svg - and -o -: one of them to stdout")
    loaded, digests = load_network(network, alpha, bandwidth)
    if previous is None:
        found = _planned(loaded, racks, size, layers, period, pattern)
    else:
        given = {
            "--racks": racks,
            "--size": size,
            "--layers": layers,
            "--period": period,
            "--pattern": pattern,
        }
        if wrong := [name for name, value in given.items() if value is not None]:
            raise UsageError(f"{' and '.join(wrong)}: only for new groups; --previous has its own")
        found, digest = _adjusted(previous, loaded)
        digests = digests | {"groups": digest}
    _refuse_wrong(found)
    _tell(found, previous, compare=compare, svg=svg, json=json, output=output)
    if output is not None:
        codec.write(output, "groups", found.groups, digests)
    console.next_with(output, "ccctl verify {}", "groups.json")


def _tell(
    found: Planned, previous: str | None, *, compare: bool, svg: str | None, json: bool, output: str | None
) -> None:
    """Print and draw what was asked for; stdout is for one of them."""
    from ccctl.render.text.training import groups as text

    for remark in found.remarks:
        console.doubt(remark)
    if previous is not None and not found.changed:
        console.note("bandwidth as before: the groups stay")
    if svg is not None:
        from ccctl.render.svg import WIDE, write_pictures
        from ccctl.render.svg.training import groups as pictures

        write_pictures(pictures.pictures(found.groups, WIDE), svg)
    if "-" in (output, svg):
        return
    if json:
        told = text.summary(found.groups, compare=compare)
        changed = {} if previous is None else {"changed": found.changed}
        console.summary(told | changed | {"findings": list(found.remarks)})
        return
    say = console.data if output is None else console.note
    text.draw(found.groups, say=say, compare=compare)


def _planned(
    network: Network,
    racks: str | None,
    size: str | None,
    layers: int | None,
    period: int | None,
    pattern: str | None,
) -> Planned:
    from synth.groups import PATTERNS, plan_groups

    named: PatternName | None = next((name for name in PATTERNS if name == pattern), None)
    if pattern is not None and named is None:
        from probes.base import meant

        raise UsageError(
            f"--pattern: expected one of {', '.join(PATTERNS)}, found {pattern!r}",
            hint=meant(pattern, PATTERNS),
        )
    given = parse_racks(racks, network) if racks is not None else None
    return plan_groups(
        network,
        parse_size(size or "100M", "--size"),
        racks=given,
        layers=layers or 1,
        period=period,
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
    """Raise NotProvenError for groups that the judge refuses."""
    from synth.check import examine_groups
    from synth.errors import NotProvenError

    if findings := [*found.groups.problems(), *examine_groups(found.groups).findings]:
        raise NotProvenError(findings)
