"""`ccctl lab`: a cluster on one machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ccctl import console
from ccctl.options import Json, Quiet, Verbose

if TYPE_CHECKING:
    from exec.lab_network import Lab

__all__ = ["EXAMPLES", "VERBS", "lab"]

EXAMPLES = (
    ("ccctl lab up lab4.toml", "make the hosts and the wires that the file describes"),
    ("ccctl lab run -- ccctl profile --quick -o lab-profile.json", "measure the lab's links, from inside it"),
    ("ccctl lab run -v --on gpu2 -- hostname", "a command inside another host, with the bytes that crossed"),
    ("ccctl lab shape 'gpu1 -> gpu2 = 5Mbit/s' 'gpu3.egress = 10Mbit/s'", "change rates while it runs"),
    ("ccctl lab status --json", "its hosts, rates and byte counters as one object"),
    ("ccctl lab down", "remove it, with all that runs in it"),
)

Chosen = Annotated[
    str | None,
    typer.Option("--lab", metavar="NAME", envvar="CCCTL_LAB", help="Which lab, where several are up."),
]


def lab() -> None:
    """Emulate a cluster on this machine: hosts, switches, and wires of chosen rates.

    Hosts are network namespaces with names of their own, so that MPI sees separate machines. Needs
    root, iproute2 and a kernel with veth pairs, bridges and htb. Nothing outside the lab is touched.
    """


def up(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The lab's description, in TOML.")],
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Make the lab that FILE describes.

    Where it fails or is interrupted, nothing of it stays. Ends with 75 where the name is taken.
    """
    from ccctl import lab_file, lab_state
    from ccctl.errors import LockHeldError
    from ccctl.signals import unwinding
    from exec import lab as built
    from exec.errors import NameTakenError
    from exec.lab_run import login_script

    described = lab_file.read_lab(file)
    with unwinding():
        try:
            built.up(described)
        except NameTakenError as error:
            raise LockHeldError(error.message, hint=error.hint) from error
        try:
            login = lab_state.login_path(described.name)
            lab_state.remember(described, login_script(described))
        except BaseException:
            built.down(described.name)
            raise
    console.detail(f"hosts are logged in to by {login}")
    console.note(f"lab {described.name}: {len(described.hosts)} hosts are up: {described.slots()}")
    console.next_step("ccctl lab run -- ccctl profile")


def run(
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="What to run there.")],
    on: Annotated[
        str | None, typer.Option("--on", metavar="HOST", help="Inside which host; the first if not said.")
    ] = None,
    traffic: Annotated[
        str | None,
        typer.Option(
            "--traffic", metavar="FILE", help="Write what crossed the lab's network as JSON to FILE."
        ),
    ] = None,
    chosen: Chosen = None,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Run a command inside a host; mpirun and ccctl in it find the others by themselves.

    Ends with the status of the command, and all that it started ends with it. With -v the bytes that
    each host sent and received meanwhile are told on stderr.
    """
    from ccctl import lab_state
    from ccctl.signals import unwinding
    from exec import lab as built
    from exec.lab_run import started

    found = lab_state.chosen(chosen)
    host = _host(found, on) if on is not None else found.hosts[0].name
    before = built.traffic(found)
    try:
        with unwinding(), started(found, host, command, str(lab_state.login_path(found.name))) as process:
            status = process.wait()
    finally:
        _tell_traffic(found, before, traffic)
    raise typer.Exit(status if status >= 0 else 128 - status)


def shape(
    changes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TARGET=RATE]...", help="gpu1, gpu1.egress, 'gpu1 -> gpu2' or trunk, = 10Mbit/s."
        ),
    ] = None,
    file: Annotated[
        str | None, typer.Option("--from", metavar="FILE", help="Take every rate from an edited lab.toml.")
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
    """Change the rates of a lab that is up, or cut a host off.

    A rate is in force at once, also for what runs in the lab; unlimited takes a limit away. A host
    without its cable still runs, but hears and reaches nobody.
    """
    from ccctl import lab_state
    from ccctl.lab_rates import reshaped
    from exec import lab as built
    from exec.lab_run import login_script

    found = lab_state.chosen(chosen)
    target = reshaped(_taken_from(file, found) if file is not None else found, changes or [])
    cables = [(_host(found, name), False) for name in down_host or []]
    cables += [(_host(found, name), True) for name in up_host or []]
    if target != found:
        built.shape(found, target)
        lab_state.remember(target, login_script(target))
    for name, connected in cables:
        built.set_carrier(found, name, connected=connected)
        console.note(f"{name}: cable {'plugged in' if connected else 'pulled'}")


def status(chosen: Chosen = None, json: Json = False) -> None:
    """Show a lab that is up: its hosts, the rate of every path, and the bytes that crossed."""
    from ccctl import lab_state
    from exec import lab as built

    found = lab_state.chosen(chosen)
    counters, carriers = built.traffic(found), built.carriers(found)
    if json:
        console.summary(_summary(found, counters, carriers))
        return
    rows = [
        (host.name, host.slots, found.address(host.name), _rate(host.egress_bytes_per_s),
         _rate(host.ingress_bytes_per_s), "up" if carriers[host.name] else "down", *counters[host.name])
        for host in found.hosts
    ]  # fmt: skip
    console.table(
        ("host", "slots", "address", "egress", "ingress", "cable", "sent (B)", "received (B)"), rows
    )
    console.data("")
    names = [host.name for host in found.hosts]
    paths = [[src, *(_path(found, src, dst) for dst in names)] for src in names]
    console.table(("one flow from", *(f"to {name}" for name in names)), paths)


def down(chosen: Chosen = None, quiet: Quiet = False, verbose: Verbose = 0) -> None:
    """Remove a lab with all that runs in it; where there is none, nothing happens."""
    from ccctl import lab_state
    from exec import lab as built

    names = [chosen] if chosen is not None else lab_state.known()
    if not names:
        console.note("no lab is up")
        return
    name = names[0] if len(names) == 1 else lab_state.chosen(None).name
    removed = built.down(name)
    lab_state.forget(name)
    console.note(f"lab {name}: {'removed' if removed else 'was not up'}")


VERBS = (up, run, shape, status, down)


def _taken_from(file: str, standing: Lab) -> Lab:
    """The lab of an edited file, which must be the one that stands but for its rates."""
    from ccctl.errors import UsageError
    from ccctl.lab_file import read_lab

    edited = read_lab(file)
    fixed = [(lab.name, [(h.name, h.slots) for h in lab.hosts], lab.racks) for lab in (edited, standing)]
    if fixed[0] != fixed[1]:
        raise UsageError(
            f"{file}: expected the name, hosts and racks of lab {standing.name}: only rates can change",
            hint=f"ccctl lab down --lab {standing.name} && ccctl lab up {file}",
        )
    return edited


def _host(lab: Lab, name: str) -> str:
    from ccctl.errors import UsageError

    if name not in (names := [host.name for host in lab.hosts]):
        raise UsageError(f"there is no host {name} in lab {lab.name}", hint=f"Its hosts: {', '.join(names)}")
    return name


def _tell_traffic(lab: Lab, before: dict[str, tuple[int, int]], output: str | None) -> None:
    from exec import lab as built

    after = built.traffic(lab)
    crossed = {
        host: (after[host][0] - sent, after[host][1] - received) for host, (sent, received) in before.items()
    }
    for host, (sent, received) in crossed.items():
        console.detail(f"{host}: sent {sent} bytes, received {received} bytes")
    if output is not None:
        _write_traffic(lab, crossed, output)


def _write_traffic(lab: Lab, crossed: dict[str, tuple[int, int]], output: str) -> None:
    import json
    from pathlib import Path

    from ccctl.atomic import write_atomically

    hosts = {host: {"sent_bytes": sent, "received_bytes": got} for host, (sent, got) in crossed.items()}
    write_atomically(Path(output), json.dumps({"lab": lab.name, "hosts": hosts}, indent=1).encode() + b"\n")


def _summary(lab: Lab, counters: dict[str, tuple[int, int]], carriers: dict[str, bool]) -> dict[str, Any]:
    names = [host.name for host in lab.hosts]
    return {
        "name": lab.name,
        "hosts": [
            {
                "name": host.name,
                "slots": host.slots,
                "address": lab.address(host.name),
                "egress_bytes_per_s": host.egress_bytes_per_s,
                "ingress_bytes_per_s": host.ingress_bytes_per_s,
                "cable": carriers[host.name],
                "sent_bytes": counters[host.name][0],
                "received_bytes": counters[host.name][1],
            }
            for host in lab.hosts
        ],
        "paths": [
            {"src": src, "dst": dst, "bytes_per_s": lab.rate_bytes_per_s(src, dst)}
            for src in names
            for dst in names
            if src != dst
        ],
    }


def _path(lab: Lab, src: str, dst: str) -> str:
    return "-" if src == dst else _rate(lab.rate_bytes_per_s(src, dst))


def _rate(bytes_per_s: float | None) -> str:
    return "unlimited" if bytes_per_s is None else f"{8e-6 * bytes_per_s:g}Mbit/s"
