"""The part of /sys and /proc that detection reads, packed into one text that can be sent to others.

The text has `[folder]` lines, then `file = content` and `link -> target`, all below the root of the file
system. A line end in content is written as \\n. Addresses of network cards are left out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from probes.base import DataError
from probes.sysfs.net import ERROR_COUNTERS
from probes.sysfs.text import lines

__all__ = ["packed", "unpack"]

_HEAD = "# Attributes of /sys and /proc as the kernel shows them: [folder], file = content, link -> target."
_PCI = [
    *("class", "vendor", "device", "subsystem_vendor", "subsystem_device", "numa_node", "local_cpulist"),
    *("current_link_speed", "current_link_width", "max_link_speed", "max_link_width", "mem_info_vram_total"),
]
_NET = ["type", "operstate", "mtu", "speed", "dev_port"]
_PORT = ["state", "phys_state", "rate", "link_layer", "gid_attrs/ndevs/0"]
_CPU = re.compile(r"(vendor_id|cpu family|model|cpu|CPU implementer)\s*:")
# Most bytes that Linux allows in the name of a file.
_LONGEST_NAME = 255
_MOST_LINES = 200_000


def packed(root: Path = Path("/")) -> str:
    """Return everything below ``root`` that detection reads."""
    found: dict[str, list[str]] = {}
    for place, line in _lines(root):
        found.setdefault(str(place.relative_to(root)), []).append(line)
    body = [line for folder, inside in found.items() for line in (f"[{folder}]", *dict.fromkeys(inside))]
    return "\n".join([_HEAD, *body]) + "\n"


def _lines(root: Path) -> Iterator[tuple[Path, str]]:
    sys = root / "sys"
    for node in sorted(sys.glob("devices/system/node/node[0-9]*")):
        yield from _files(node, ["cpulist", "distance"])
        memory = re.search(r".*MemTotal:.*", lines(node / "meminfo"))
        if memory:
            yield node, f"meminfo = {memory[0]}"
    for kind, attributes in (("bus/pci/devices", _PCI), ("class/net", _NET), ("class/infiniband", [])):
        folder = sys / kind
        if folder.is_dir():
            yield folder, "# is there"
        for entry in sorted(folder.glob("*")):
            if entry.is_symlink():
                yield folder, f"{entry.name} -> {entry.readlink()}"
            place = entry.resolve()
            yield from _files(place, attributes)
            yield from _links(place, ["physfn"] if kind == "bus/pci/devices" else ["device"])
            yield from _ports(place)
    yield from _kfd(sys)
    processor = [line for line in lines(root / "proc/cpuinfo").splitlines() if _CPU.match(line)]
    if processor:
        yield root / "proc", "cpuinfo = " + "\\n".join(dict.fromkeys(processor))


def _files(folder: Path, names: list[str]) -> Iterator[tuple[Path, str]]:
    for name in names:
        content = lines(folder / name).rstrip("\n")
        if content:
            place = folder / name
            yield place.parent, f"{place.name} = " + content.replace("\n", "\\n")


def _links(folder: Path, names: list[str]) -> Iterator[tuple[Path, str]]:
    for name in names:
        if (folder / name).is_symlink():
            yield folder, f"{name} -> {(folder / name).readlink()}"


def _ports(card: Path) -> Iterator[tuple[Path, str]]:
    for port in sorted(card.glob("ports/[0-9]*")):
        yield from _files(port, [*_PORT, *(f"counters/{name}" for name in ERROR_COUNTERS)])


def _kfd(sys: Path) -> Iterator[tuple[Path, str]]:
    folder = (sys / "class/kfd/kfd").resolve()
    if not folder.is_dir():
        return
    if (sys / "class/kfd/kfd").is_symlink():
        yield from _links(sys / "class/kfd", ["kfd"])
    for place in sorted(folder.glob("topology/nodes/*")):
        for inner in (place, *sorted(place.glob("mem_banks/*")), *sorted(place.glob("io_links/*"))):
            yield from _files(inner, ["properties"])


def unpack(text: str, root: Path, source: str) -> None:
    """Write the files of a ``packed`` text below ``root``; raises DataError if a line leads outside it.

    Links are made last, so that no file is written through one.
    """
    links: list[tuple[Path, str, str]] = []
    folder, rows = root, text.splitlines()
    if len(rows) > _MOST_LINES:
        raise DataError(source, [f"expected at most {_MOST_LINES} lines, found {len(rows)}"])
    for number, line in enumerate(rows, 1):
        if line.startswith("#") or not line.strip():
            continue
        name, told, content = line.partition(" = ")
        link, points, target = line.partition(" -> ")
        try:
            if line.startswith("[") and line.endswith("]"):
                folder = _inside(root, root / line[1:-1])
                folder.mkdir(parents=True, exist_ok=True)
            elif told:
                content = content.replace("\\n", "\n")
                _inside(root, folder / name).write_text(content + "\n", encoding="utf-8")
            elif points:
                links.append((_inside(root, folder / link), target, f"line {number}"))
            else:
                raise ValueError("expected [folder], file = content or link -> target")
        except (OSError, ValueError) as error:
            raise DataError(source, [f"line {number}: {error}"]) from error
    for place, target, where in links:
        try:
            _link(root, place, target)
        except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: links in a cycle
            raise DataError(source, [f"{where}: {error}"]) from error


def _inside(root: Path, place: Path) -> Path:
    plain = Path(os.path.normpath(place))
    if root != plain and root not in plain.parents:
        raise ValueError("leads out of the recorded machine")
    return plain


def _link(root: Path, place: Path, target: str) -> None:
    """Make a link.

    Its target may go up (..) only at its beginning, so that no later link can redirect it outside.
    """
    parts = target.split("/")
    if any(len(part.encode()) > _LONGEST_NAME for part in parts):
        raise ValueError(f"expected names of at most {_LONGEST_NAME} bytes in the target of a link")
    ups = sum(part == ".." for part in parts)
    above = Path(os.path.normpath(place.parent.resolve() / "/".join(parts[:ups])))
    if ".." in parts[ups:] or target.startswith("/") or (above != root and root not in above.parents):
        raise ValueError("a link leads out of the recorded machine")
    place.symlink_to(target)
    place.resolve()
