"""Delays on the wires of a lab on kernels without netem, by a process that holds frames (`forwarder`).

A wire with a delay is cut at a port of a switch. The port is renamed, and a second wire takes over its name
and its place at the switch, so the shaping and the counters of the port stay in place. The process carries
frames between the two wires. A cut wire stays cut until the lab is removed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from exec.lab.forwarder import MOST_JOINTS, Joint
from exec.lab.htb import Device, delays, port, uplink_ports
from exec.lab.iproute import batch, inside, ip_json, kill_inside
from exec.lab.model import Lab
from probes.base import UnavailableError

__all__ = ["cut", "forward", "held"]

_NEAR, _FAR = "w", "x"


def held(lab: Lab) -> bool:
    """Return whether a process holds the frames of the lab: it has a cut wire, or delays without netem."""
    if any(link["ifname"].startswith(_NEAR) for link in _links(lab)):
        return True
    if not delays(lab):
        return False
    try:
        batch("tc", ["qdisc add dev lo root netem delay 1ms", "qdisc del dev lo root"], lab.switch)
    except UnavailableError as error:
        if "netem" in error.hint:
            return True
        raise
    return False


def cut(lab: Lab) -> set[str]:
    """Cut each wire that has a delay and is whole; return the ports at which this was done.

    These ports are new, so they have no shaping yet.
    """
    late = delays(lab)
    wanted = {
        name for name, sender in _senders(lab).items() if late.get(sender) or late.get((lab.switch, name))
    }
    there = {link["ifname"]: link for link in _links(lab)}
    new = {name for name in wanted if _NEAR + name not in there}
    for name in sorted(new):
        near, far = _NEAR + name, _FAR + name
        lines = [f"link set {name} nomaster down", f"link set {name} name {near}", f"link set {near} up"]
        lines += [f"link add {name} type veth peer name {far}", f"link set {far} up"]
        state = "up" if "UP" in there[name]["flags"] else "down"
        lines.append(f"link set {name} master {there[name]['master']} {state}")
        batch("tc", [f"qdisc del dev {name} root"] if there[name]["qdisc"] == "htb" else [], lab.switch)
        batch("ip", lines, lab.switch)
    return new


def forward(lab: Lab) -> None:
    """Start the processes that carry frames over the cut wires of the lab; end those that run."""
    kill_inside(lab.switch)
    joints = list(_joints(lab))
    for at in range(0, len(joints), MOST_JOINTS):
        words = [word for joint in joints[at : at + MOST_JOINTS] for word in joint.arguments()]
        inside(lab.switch, [sys.executable, "-P", "-m", "exec.lab.forwarder", *words])


def _joints(lab: Lab) -> Iterator[Joint]:
    late = delays(lab)
    there = {link["ifname"] for link in _links(lab)}
    for name, sender in _senders(lab).items():
        if _NEAR + name in there:
            yield Joint(_NEAR + name, _FAR + name, late.get(sender, 0.0), late.get((lab.switch, name), 0.0))


def _links(lab: Lab) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ip_json("-netns", lab.switch, "link", "show")
    return found


def _senders(lab: Lab) -> dict[str, Device]:
    """Return {port of a switch: the interface at the other end of its wire}."""
    found = {
        port(number, nic): (lab.namespace(host.name), device)
        for number, host in enumerate(lab.hosts)
        for nic, device in enumerate(lab.devices())
    }
    return found | {
        near: (lab.switch, far) for near, far in (uplink_ports(rack) for rack in range(len(lab.racks)))
    }
