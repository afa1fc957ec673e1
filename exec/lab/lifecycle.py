"""A cluster on one machine: each host is a network namespace whose links the kernel shapes.

Names of namespaces begin with the lab's name, so several labs can exist at once and nothing else is touched.
``down`` needs only that name and may be repeated; an ``up`` that fails removes everything it made.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from exec.errors import NameTakenError
from exec.lab import losses, wires
from exec.lab.htb import commands, delays, port, shapes, uplink_ports
from exec.lab.iproute import batch, inside, ip, ip_json, kill_inside, namespaces, require
from exec.lab.model import SUBNET, Lab, LabHost, refuse_name
from probes.base import UnavailableError
from probes.files import ownership

__all__ = ["cables", "down", "set_cable", "shape", "standing", "traffic", "up"]

_FILES = Path("/etc/netns")
_HOSTS = "hosts"
_CORE = "core"
# The kernel passes at most this many segments as one packet, so data do not arrive in bursts.
_SEGMENTS = 2
# Linux reserves the routing tables 0 and 253 to 255; these lie between.
_FIRST_TABLE = 100
# Reno needs no time to learn a model of the path, unlike newer congestion controls. With IPv6 disabled, the
# kernel sends no packets of its own.
_SETTINGS = (
    "echo reno >/proc/sys/net/ipv4/tcp_congestion_control; "
    "if [ -e /proc/sys/net/ipv6/conf/all/disable_ipv6 ]; then "
    "echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6; fi; "
    # With several interfaces on one network, each answers ARP requests for its own address only.
    "for all in all default; do cd /proc/sys/net/ipv4/conf/$all; "
    "echo 1 >arp_ignore; echo 2 >arp_announce; echo 0 >rp_filter; done"
)


def up(lab: Lab) -> None:
    """Make the hosts, switches and links of ``lab``, with all rates in force.

    Raises NameTakenError if one of its namespaces or folders exists, and UnavailableError if the user lacks
    the permission or the kernel lacks a feature. After an error or an interrupt nothing of the lab remains.
    """
    require()
    _claim(lab)
    try:
        _create(lab)
        _write_hosts(lab)
        _wire(lab)
        _apply(Lab(lab.name, tuple(LabHost(host.name) for host in lab.hosts), nics=lab.nics), lab)
    except BaseException:
        down(lab.name)
        raise


def down(name: str) -> bool:
    """Remove the lab of that name with all its processes; return whether there was anything to remove.

    Raises UsageError for an invalid name. Raises UnavailableError, before anything is removed, if a folder of
    its hosts holds a foreign file.
    """
    refuse_name(name)
    require()
    found, folders = standing(name), _folders(name)
    for folder in folders:
        ownership.refuse_foreign(folder, _is_ours)
    for namespace in found:
        kill_inside(namespace)
        ip("netns", "delete", namespace)
    for folder in folders:
        ownership.remove(folder, _is_ours)
    return bool(found or folders)


def standing(name: str) -> list[str]:
    """Return the existing namespaces of the lab, hosts first; raises UsageError for an invalid name."""
    refuse_name(name)
    found = [namespace for namespace in namespaces() if _belongs(namespace, name)]
    return sorted(found, key=lambda namespace: (namespace == f"ccctl.{name}", namespace))


def shape(before: Lab, after: Lab) -> None:
    """Change a running lab from ``before`` to ``after``, which has the same hosts, racks and NICs.

    Rates, delays, losses and MTUs may differ. The first delay of a wire on a kernel without netem interrupts
    the wire for a moment.
    """
    require()
    _apply(before, after)


def set_cable(lab: Lab, host: str, *, connected: bool) -> None:
    """Unplug the host's cable at the switch, or plug it in; packets are lost while it is unplugged."""
    require()
    state = "up" if connected else "down"
    for nic in range(lab.nics):
        ip("-netns", lab.switch, "link", "set", "dev", port(lab.number(host), nic), state)


def cables(lab: Lab) -> dict[str, bool]:
    """Return whether each host's cable is plugged in."""
    flags = {link["ifname"]: link["flags"] for link in _ports(lab)}
    return {host.name: "UP" in flags[port(number)] for number, host in enumerate(lab.hosts)}


def traffic(lab: Lab) -> dict[str, tuple[int, int]]:
    """Return {host: (bytes sent, bytes received)} since the lab was made, counted at the switch."""
    counters = {link["ifname"]: link["stats64"] for link in _ports(lab)}
    found = {}
    for number, host in enumerate(lab.hosts):
        nics = [counters[port(number, nic)] for nic in range(lab.nics)]
        found[host.name] = (sum(nic["rx"]["bytes"] for nic in nics), sum(nic["tx"]["bytes"] for nic in nics))
    return found


def _apply(before: Lab, after: Lab) -> None:
    late = delays(before), delays(after)
    new: set[str] = set()
    by_process = wires.held(after)
    if by_process:
        new, late = wires.cut(after), ({}, {})
    old_shapes, old_losses, lossy = shapes(before), losses.losses(before), losses.losses(after)
    for device, classes in shapes(after).items():
        fresh = device[0] == after.switch and device[1] in new
        old = () if fresh else old_shapes.get(device, ())
        lines = commands(device[1], old, classes, (late[0].get(device, 0.0), late[1].get(device, 0.0)))
        lost = 0.0 if fresh else old_losses.get(device, 0.0)
        lines += losses.commands(device[1], lost, lossy.get(device, 0.0))
        batch("tc", lines, device[0])
    if by_process:
        wires.forward(after)
    for old_host, host in zip(before.hosts, after.hosts, strict=True):
        if old_host.mtu_bytes != host.mtu_bytes:
            lines = [f"link set dev {device} mtu {host.mtu_bytes}" for device in after.devices()]
            batch("ip", lines, after.namespace(host.name))


def _claim(lab: Lab) -> None:
    """Make the switch's namespace; raises NameTakenError in all but one of several concurrent callers."""
    taken = [f"the namespace {space}" for space in standing(lab.name)]
    taken += [f"the folder {folder}" for folder in _folders(lab.name)]
    if not taken:
        try:
            ip("netns", "add", lab.switch)
            return
        except UnavailableError:
            taken = [f"the namespace {space}" for space in standing(lab.name)]
            if not taken:
                raise
    raise NameTakenError(
        f"lab {lab.name}: {taken[0]} exists already",
        hint="ccctl lab down removes it; or give the lab another name.",
    )


def _create(lab: Lab) -> None:
    names = [lab.namespace(host.name) for host in lab.hosts]
    batch("ip", [f"netns add {name}" for name in names])
    for name in (lab.switch, *names):
        inside(name, ["sh", "-c", _SETTINGS])


def _write_hosts(lab: Lab) -> None:
    """Write a file of all host names for each host; ``ip netns exec`` mounts it over /etc/hosts."""
    lines = ["127.0.0.1 localhost", *(f"{lab.address(host.name)} {host.name}" for host in lab.hosts)]
    for host in lab.hosts:
        folder = _FILES / lab.namespace(host.name)
        try:
            ownership.make(folder)
            (folder / _HOSTS).write_text("\n".join(lines) + "\n")
        except OSError as error:
            raise UnavailableError(f"{folder}: cannot be written: {error.strerror}") from error


def _wire(lab: Lab) -> None:
    prefix = SUBNET.partition("/")[2]
    lines = [f"link add {_CORE} type bridge", f"link set {_CORE} up"]
    for rack in range(len(lab.racks)):
        near, far = uplink_ports(rack)
        lines += [f"link add {_rack(rack)} type bridge", f"link set {_rack(rack)} up"]
        lines.append(f"link add {near} type veth peer name {far}")
        lines += [f"link set {near} master {_rack(rack)} up", f"link set {far} master {_CORE} up"]
    batch("ip", lines, lab.switch)
    for number, host in enumerate(lab.hosts):
        here, lines = lab.namespace(host.name), ["link set lo up"]
        for nic, device in enumerate(lab.devices()):
            bridge = _rack(lab.rack(host.name, nic)) if lab.racks else _CORE
            at_switch, address = port(number, nic), lab.address(host.name, nic)
            batch(
                "ip", [f"link add {device} netns {here} type veth peer name {at_switch} netns {lab.switch}"]
            )
            batch("ip", [f"link set {at_switch} master {bridge} up"], lab.switch)
            # Without this limit the kernel passes up to 64 KiB as one packet, which arrives all at once.
            lines.append(f"link set {device} gso_max_segs {_SEGMENTS}")
            lines += [f"address add {address}/{prefix} dev {device}", f"link set {device} up"]
            if nic:
                # Packets with an interface's source address leave by that interface.
                lines.append(f"route add {SUBNET} dev {device} src {address} table {_FIRST_TABLE + nic}")
                lines.append(f"rule add from {address} lookup {_FIRST_TABLE + nic}")
        batch("ip", lines, here)


def _rack(rack: int) -> str:
    return f"rack{rack}"


def _ports(lab: Lab) -> list[dict[str, Any]]:
    require()
    found: list[dict[str, Any]] = ip_json("-netns", lab.switch, "-statistics", "link", "show")
    return found


def _folders(name: str) -> list[Path]:
    """Return the folders of the lab's hosts; their files are mounted over files of /etc."""
    return sorted(path for path in _FILES.glob("ccctl.*") if _belongs(path.name, name))


def _is_ours(file: str) -> bool:
    return file == _HOSTS


def _belongs(namespace: str, name: str) -> bool:
    return namespace == f"ccctl.{name}" or namespace.startswith(f"ccctl.{name}.")
