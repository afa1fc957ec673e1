"""`ccctl lab`: a cluster on one machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ccctl import console
from ccctl.arguments import Json, Quiet, Verbose
from ccctl.artifacts import refuse_unwritable, write_atomically
from ccctl.errors import LockHeldError, UnavailableError, UsageError

if TYPE_CHECKING:
    from exec.lab import Lab

__all__ = ["EXAMPLES", "VERBS", "lab"]

EXAMPLES = (
    ("ccctl lab up lab4.toml", "make the hosts and the wires that the file describes"),
    ("ccctl lab run -- ccctl profile --quick -o lab-profile.json", "measure the lab's links from inside"),
    (
        "ccctl lab run -v --on gpu2 -- uname -n",
        "run a command in another host, and print the bytes that each host sent",
    ),
    ("ccctl lab shape 'gpu1 -> gpu2 = 5Mbit/s' 'gpu3.egress = 10Mbit/s'", "change rates while it runs"),
    (
        "ccctl lab shape 'gpu2.mtu = 576' 'gpu3.ingress = 1%'",
        "limit the packets of one host to 576 bytes, lose 1 % of those to another",
    ),
    ("ccctl lab shape --down-host gpu4", "pull a cable; --up-host puts it back"),
    ("ccctl lab status --json", "its hosts, rates and byte counters as one object"),
    ("ccctl lab list", "the labs that are up, and their hosts"),
    ("ccctl lab down", "remove it, with all that runs in it"),
)

Chosen = Annotated[
    str | None,
    typer.Option("--lab", metavar="NAME", envvar="CCCTL_LAB", help="Name of the lab, if several are up."),
]


def lab() -> None:
    """Emulate a cluster on this machine: hosts, switches, wires.

    Hosts are network namespaces with names of their own, so that MPI sees separate machines. Needs
    root, iproute2 and a kernel with veth pairs, bridges and htb. Nothing outside the lab is touched.
    """


def up(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The lab's description, in TOML.")],
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Make the lab that FILE describes.

    FILE holds: name; hosts, as a number or as names such as "gpu[1-4]:2" with slots; slots, for hosts without
    their own; nics, their number in each host; rate, what each NIC sends and receives, such as "100Mbit/s".
    For hosts in several racks: racks, a list with the hosts of each (or with interfaces, "gpu1/eth1"), and
    trunk, what each rack's uplink carries in each direction. A table [rates] sets other rates by target:
    "gpu1", "gpu1.egress", "gpu1.ingress", "gpu1/eth1", "gpu1 -> gpu2".

    Tables [delays], such as "gpu1.egress" = "2ms", and [losses], such as gpu1 = "1%", make packets of hosts
    late, or lose a share of them at random; trunk = "1ms" delays what passes each rack's uplink. A table
    [mtu], such as gpu1 = 576, sets the largest packets that hosts send. Losses need a kernel with clsact and
    bpf. On a kernel without netem, a process delays the packets.

    If it fails or is interrupted, nothing of the lab stays. Exit status 75 if the name is in use.
    """
    from ccctl.lab import state, toml
    from exec.errors import NameTakenError
    from exec.lab import lifecycle as kernel
    from exec.launcher import unwinding

    described = toml.read_lab(file)
    state.refuse_foreign(described.name)
    with unwinding():
        try:
            kernel.up(described)
        except NameTakenError as error:
            hint = f"ccctl lab down --lab {described.name} removes it; or give the lab another name."
            raise LockHeldError(error.message, hint=hint) from error
        try:
            state.remember(described)
        except BaseException:
            kernel.down(described.name)
            state.forget(described.name)
            raise
    console.detail(f"its files are in {state.folder(described.name)}")
    console.note(f"lab {described.name}: {len(described.hosts)} hosts are up: {described.slots()}")
    console.next_step("ccctl lab run -- ccctl profile")


def run(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="Command to run there.")],
    on: Annotated[
        str | None, typer.Option("--on", metavar="HOST", help="Host to run in. [the first]")
    ] = None,
    traffic: Annotated[
        str | None,
        typer.Option(
            "--traffic",
            metavar="FILE",
            help="Write the bytes that each host sent and received to FILE, as JSON.",
        ),
    ] = None,
    chosen: Chosen = None,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Run a command inside a host.

    mpirun and ccctl find the other hosts of the lab by themselves. The exit status is that of the command,
    and all that it started ends with it. -v prints on stderr the bytes that each host sent and received
    meanwhile.
    """
    from ccctl.lab import state
    from exec.lab import lifecycle as kernel, started
    from exec.launcher import unwinding

    if traffic is not None:
        refuse_unwritable(Path(traffic))
    found = state.chosen(chosen)
    host = _host(found, on) if on is not None else found.hosts[0].name
    before = kernel.traffic(found)
    try:
        with unwinding(), started(found, host, command, state.folder(found.name)) as process:
            status = process.wait()
    finally:
        _tell_traffic(found, before, traffic)
    raise typer.Exit(status if status >= 0 else 128 - status)


def shape(
    changes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TARGET=VALUE]...",
            help="TARGET: gpu1, gpu1.egress, gpu1.ingress, 'gpu1 -> gpu2' or trunk. VALUE: a rate; for hosts "
            "and trunk also a delay (2ms), for hosts a loss (1%). Or gpu1.mtu=BYTES.",
        ),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="FILE",
            help="Take all rates, delays, losses and MTUs from an edited description.",
        ),
    ] = None,
    down_host: Annotated[
        list[str] | None, typer.Option("--down-host", metavar="HOST", help="Pull the cable of HOST.")
    ] = None,
    up_host: Annotated[
        list[str] | None, typer.Option("--up-host", metavar="HOST", help="Put the cable of HOST back.")
    ] = None,
    chosen: Chosen = None,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Change the rates, delays and losses of a lab that is up, or cut a host off.

    A change is in force at once, also for what runs in the lab. unlimited removes the limit of a rate, 0ms a
    delay, 0% a loss. A host without its cable still runs, but exchanges packets with no other host.
    """
    from ccctl.lab import reshaped, state
    from exec.lab import lifecycle as kernel

    found = state.chosen(chosen)
    target = reshaped(_edited(file, found) if file is not None else found, changes or [])
    cables = [(_host(found, name), False) for name in down_host or []]
    cables += [(_host(found, name), True) for name in up_host or []]
    if target != found:
        kernel.shape(found, target)
        state.remember(target)
    for name, connected in cables:
        kernel.set_cable(found, name, connected=connected)
    if target == found and not cables:
        console.note(f"lab {found.name}: nothing to change")


def status(chosen: Chosen = None, json: Json = False) -> None:
    """Show a lab that is up: its hosts, rates and bytes.

    Prints the byte counters of each host, and the rate between each two hosts.
    """
    from ccctl.lab import state
    from ccctl.render.text import lab as picture
    from exec.lab import lifecycle as kernel

    found = state.chosen(chosen)
    crossed, cables = kernel.traffic(found), kernel.cables(found)
    (console.summary if json else picture.draw)(picture.summary(found, crossed, cables))


def list_(json: Json = False) -> None:
    """List the labs that are up.

    Each with its hosts and their slots, as other commands take them.
    """
    from ccctl.lab import state

    labs = [state.chosen(name) for name in state.known()]
    if json:
        console.summary({"labs": [{"name": lab.name, "hosts": lab.slots()} for lab in labs]})
    elif labs:
        console.table(("lab", "hosts"), [(lab.name, lab.slots()) for lab in labs])
    else:
        console.note("no lab is up")


def down(
    named: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name of the lab, as with --lab.")
    ] = None,
    chosen: Chosen = None,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Remove a lab with all that runs in it.

    Where there is none, nothing happens.
    """
    from ccctl.lab import state
    from exec.lab import lifecycle as kernel

    # The argument NAME takes precedence over --lab and CCCTL_LAB.
    chosen = named if named is not None else chosen
    if chosen is None and not state.known():
        console.note("no lab is up")
        return
    name = chosen if chosen is not None else state.chosen(None).name
    state.refuse_foreign(name)
    removed = kernel.down(name)
    state.forget(name)
    console.note(f"lab {name}: {'removed' if removed else 'was not up'}")


VERBS = (up, run, shape, status, list_, down)


def _edited(file: str, standing: Lab) -> Lab:
    """Return the lab that ``file`` describes; its hosts, racks and NICs must be those of ``standing``."""
    from ccctl.lab import read_lab

    edited = read_lab(file)
    fixed = [
        (lab.name, [(h.name, h.slots) for h in lab.hosts], lab.racks, lab.nics) for lab in (edited, standing)
    ]
    if fixed[0] != fixed[1]:
        raise UsageError(
            f"{file}: expected the hosts, racks and NICs of lab {standing.name}; only their rates, delays, "
            "losses and MTUs can change",
            hint=f"ccctl lab down --lab {standing.name} && ccctl lab up {file}",
        )
    return edited


def _host(lab: Lab, name: str) -> str:
    if name not in (names := [host.name for host in lab.hosts]):
        raise UsageError(f"there is no host {name} in lab {lab.name}", hint=f"Its hosts: {', '.join(names)}")
    return name


def _tell_traffic(lab: Lab, before: dict[str, tuple[int, int]], output: str | None) -> None:
    import json

    from exec.lab import lifecycle as kernel

    try:
        after = kernel.traffic(lab)
    except UnavailableError:
        console.warn(f"lab {lab.name} was removed meanwhile: its byte counters are lost")
        return
    crossed = {
        host: {"sent_bytes": after[host][0] - sent, "received_bytes": after[host][1] - received}
        for host, (sent, received) in before.items()
    }
    for host, counted in crossed.items():
        console.detail(
            f"{host}: sent {counted['sent_bytes']} bytes, received {counted['received_bytes']} bytes"
        )
    if output is not None:
        content = json.dumps({"lab": lab.name, "hosts": crossed}, indent=1) + "\n"
        write_atomically(Path(output), content.encode())
