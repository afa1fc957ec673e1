"""Parser of the matrices that nvidia-smi prints.

Cells are separated by any white space, because tabs and spaces vary with the driver's age and with copying. A
terminal that breaks a long line may remove the space between two cells. An incomplete matrix is refused. Only
rows of NICs may be missing, at the end: the matrix is symmetric, so only cells between two NICs are lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from probes.base import DataError, plural, without_tags

__all__ = ["CPUS", "NODE", "P2P_WORDS", "DeviceMatrix", "decoded", "grids"]

CPUS, NODE = "CPU Affinity", "NUMA Affinity"
PATH_WORDS = frozenset({"PIX", "PXB", "PHB", "NODE", "SYS", "SOC"})
P2P_WORDS = frozenset({"OK", "CNS", "GNS", "TNS", "NS", "DR", "U"})
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_DEVICE = re.compile(r"GPU[0-9]{1,6}|NIC[0-9]{1,6}|[a-z][\w.-]*\d[\w.-]*")
_NVLINKS = re.compile(r"NV[1-9][0-9]{0,3}")
# Two or more path types without a space between them.
_PATH = rf"(?:X|{'|'.join(sorted(PATH_WORDS))}|{_NVLINKS.pattern})"
_MERGED = re.compile(rf"{_PATH}{{2,64}}")
# Cells merged with the list of CPUs after them. A list right after NV<n> cannot be separated from its digits.
_MERGED_WITH_CPUS = re.compile(
    rf"({_PATH}{{0,64}}(?:X|{'|'.join(sorted(PATH_WORDS))}))([0-9][0-9,-]{{0,999}})"
)
_NUMBERED = re.compile(r"(?:GPU|NIC)[0-9]{1,6}")
_MERGED_NAMES = re.compile(rf"(?:{_NUMBERED.pattern}){{2,64}}")
_LATER = re.compile(r"(?<=[\s0-9])(?=CPU\s+Affinity|NUMA\s+Affinity|GPU\s+NUMA\s+ID)")
_LEGEND = re.compile(r"\s*(NIC\d+)\s*[:=]\s*(\S+)\s*")
# No host has more GPUs and NICs, and the work grows with the square of their number.
_MOST_DEVICES = 256
# The beginning of a GPU's row. A launcher's tag before it is removed from other lines, too.
_FIRST_CELLS = r"\bGPU[0-9]{1,6}[ \t]+[X01]\b"
_TABLE_ROW = re.compile(r"^[ \t]*\|.*$", re.MULTILINE)


@dataclass
class DeviceMatrix:
    """One matrix: a word for each pair of ``devices``, and the further columns by device."""

    line: int
    devices: tuple[str, ...]
    columns: tuple[str, ...]
    rows: dict[str, tuple[str, ...]] = field(default_factory=dict)
    further: dict[str, dict[str, str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def words(self) -> set[str]:
        """Every word except the X of a device with itself."""
        return {word for cells in self.rows.values() for word in cells} - {"X", ""}

    @property
    def is_p2p(self) -> bool:
        """Whether the matrix holds peer-to-peer access of GPUs, not paths."""
        return bool(self.words) and self.words <= P2P_WORDS


def decoded(content: bytes) -> str:
    """Decode text as a terminal shows it: any Unicode and line ends, no colours, no tags of launchers."""
    wide = content.startswith((b"\xff\xfe", b"\xfe\xff"))
    text = content.decode("utf-16" if wide else "utf-8-sig", errors="replace")
    text = _ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n").replace("\xa0", " ")
    return without_tags(_TABLE_ROW.sub(lambda row: row[0].replace("|", " "), text), _FIRST_CELLS)


def grids(text: str, source: str) -> tuple[list[DeviceMatrix], dict[str, str]]:
    """Return every matrix in ``text``, and the legend's name for each NIC.

    Raises DataError with everything that is missing if a matrix is incomplete.
    """
    found: list[DeviceMatrix] = []
    problems: list[str] = []
    legend: dict[str, str] = {}
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        devices, columns = _header(line)
        named = _LEGEND.fullmatch(line)
        if devices:
            found.append(DeviceMatrix(number, devices, columns))
        elif named:
            _add_name(legend, named[1], named[2], last=number == len(lines))
        elif found:
            problems += _row(found[-1], line, number, last=number == len(lines))
    problems += [problem for grid in found for problem in _whole(grid)]
    if problems:
        hint = "Keep the whole output, one line a device: nvidia-smi topo -m > topo.txt"
        raise DataError(source, problems, hint=hint)
    return found, legend


def _header(line: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return (devices, further columns) of the line above a matrix; both empty for any other line."""
    own, *later = _LATER.split(f" {line}")
    names = [name for word in own.split() for name in _separated_names(word)]
    known = [name for name in names if _DEVICE.fullmatch(name)]
    if (
        not known
        or not known[0].startswith("GPU")
        or names[: len(known)] != known
        or len(known) > _MOST_DEVICES
    ):
        return (), ()
    rest = names[len(known) :]
    if rest and (_is_word(rest[0]) or not rest[0][0].isupper()):  # a row of the matrix, or prose
        return (), ()
    return tuple(known), tuple(" ".join(column.split()) for column in (*rest, *later))


def _separated_names(word: str) -> list[str]:
    """Return the devices in a word: "NIC8NIC9" is two devices."""
    return _NUMBERED.findall(word) if _MERGED_NAMES.fullmatch(word) else [word]


def _is_word(text: str) -> bool:
    return text == "X" or text in PATH_WORDS or text in P2P_WORDS or bool(_NVLINKS.fullmatch(text))


def _row(grid: DeviceMatrix, line: str, number: int, *, last: bool) -> Iterator[str]:
    name, *words = line.split() or [""]
    tokens = [cell for word in words for cell in _separated(word)]
    is_row = bool(tokens) and _is_word(tokens[0])
    if not _DEVICE.fullmatch(name) or (not is_row and (name not in grid.devices or name in grid.rows)):
        return
    size = len(grid.devices)
    cells, further = tuple(tokens[:size]), tokens[size:]
    if name not in grid.devices:
        yield f"line {number}: {name} has a row, and no column in line {grid.line}"
    elif name in grid.rows:
        yield f"line {number}: {name} has a second row"
    elif last and len(cells) < size and not name.startswith("GPU"):
        return  # the file ends inside a row that can be missing
    elif len(cells) < size or not all(map(_is_word, cells)):
        good = next((at for at, cell in enumerate(cells) if not _is_word(cell)), len(cells))
        found = f", then {cells[good]!r}" if good < len(cells) else ""
        yield f"line {number}: {name} has {good} cells of the {size} that line {grid.line} announces{found}"
    elif further and _is_word(further[0]):
        yield f"line {number}: {name} has more cells than the {size} columns of line {grid.line}"
    else:
        grid.rows[name] = cells
        columns = _columns(grid, name, line, further)
        _keep(grid, name, columns, further, last=last)


def _separated(word: str) -> list[str]:
    """Return the cells in a word: "NODENODE" is two cells, "SYS0-27" a cell and CPUs."""
    with_cpus = _MERGED_WITH_CPUS.fullmatch(word)
    if with_cpus:
        return [*re.findall(_PATH, with_cpus[1]), with_cpus[2]]
    return re.findall(_PATH, word) if _MERGED.fullmatch(word) else [word]


def _columns(grid: DeviceMatrix, name: str, line: str, further: Sequence[str]) -> tuple[str, ...]:
    """Return the further columns that have a word in this line: CPUs are empty where none is near a GPU.

    An empty cell is visible only between tabs.
    """
    _, *parts = (part.strip() for part in line.rstrip().split("\t"))
    size = len(grid.devices)
    is_empty = tuple(parts[:size]) == grid.rows[name] and parts[size : size + 1] == [""]
    if is_empty and grid.columns[:1] == (CPUS,) and len(further) == len(grid.columns) - 1:
        return grid.columns[1:]
    return grid.columns


def _keep(
    grid: DeviceMatrix, name: str, columns: Sequence[str], further: Sequence[str], *, last: bool
) -> None:
    """Keep the columns right of the cells, if each has one word. Rows of NICs have none."""
    if not further:
        return
    if len(further) != len(columns):
        grid.notes.append(
            f"{name}: {plural(len(further), 'word')} for {len(columns)} columns: affinity is unknown"
        )
        return
    said = dict(zip(columns, further, strict=True))
    others = {values[columns[-1]] for values in grid.further.values()}
    if last and further[-1] != "N/A" and further[-1] not in others:
        # The file ends inside this line, so the word may be cut off.
        grid.notes.append(f"{name}: the file ends inside its line: {columns[-1]} is unknown")
        del said[columns[-1]]
    grid.further[name] = said


def _add_name(legend: dict[str, str], nic: str, name: str, *, last: bool) -> None:
    shapes = {re.sub(r"\d+", "#", known) for known in legend.values()}
    cut = last and bool(shapes) and re.sub(r"\d+", "#", name) not in shapes
    if not cut and name not in legend.values():
        legend.setdefault(nic, name)


def _fill(grid: DeviceMatrix, missing: Sequence[str]) -> None:
    """Fill in missing rows of NICs from the columns of the other rows."""
    for device in missing:
        at = grid.devices.index(device)
        grid.rows[device] = tuple(
            "X" if other == device else "" if other in missing else grid.rows[other][at]
            for other in grid.devices
        )
    if missing:
        grid.notes.append(f"rows of {', '.join(missing)} are missing: nothing is known of pairs of them")


def _whole(grid: DeviceMatrix) -> Iterator[str]:
    where = f"the matrix of line {grid.line}"
    if len(set(grid.devices)) != len(grid.devices):
        yield f"{where}: a device has two columns"
    missing = [device for device in grid.devices if device not in grid.rows]
    if any(device.startswith("GPU") for device in missing) or missing != list(grid.devices)[len(grid.rows) :]:
        found = f"found none for {', '.join(missing)}"
        yield f"{where}: expected a row for each of its {len(grid.devices)} columns, {found}"
        return
    _fill(grid, missing)
    for at, device in enumerate(grid.devices):
        own = [column for column, word in zip(grid.devices, grid.rows[device], strict=True) if word == "X"]
        if own != [grid.devices[at]]:
            yield f"{where}: expected X in the row of {device} at {device} alone, found it at {own or 'none'}"
    mixed = grid.words & P2P_WORDS and grid.words - P2P_WORDS
    if mixed:
        found = ", ".join(sorted(grid.words))
        yield f"{where}: expected path types or peer-to-peer states, found both: {found}"
