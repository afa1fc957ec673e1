"""Recorded machines: the raw inputs of detection, kept as files and read again on another machine.

A recording is a folder: `sysfs.txt` holds the kernel's files, `nvml.json` the answers of NVIDIA's driver.
Addresses of network cards and hosts are left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

from probes.base import DataError, MissingInputError
from probes.files import read_text, temporary_folders
from probes.nvml import RecordedNvml, RecordingNvml, gpus
from probes.sysfs import kfd, machine, packed, unpack
from probes.topology import Topology

__all__ = ["NVML", "SYSFS", "driver_of", "read", "record"]

SYSFS, NVML = "sysfs.txt", "nvml.json"


def record(
    root: Path = Path("/"), driver: Any = None, readers: Iterable[Callable[[Any], object]] = ()
) -> dict[str, str]:
    """Return the files of a recording of this machine, by name; ``driver`` replaces the module pynvml.

    Each of ``readers`` is called with the driver, so that the answers to its questions are recorded too.
    """
    recording = RecordingNvml(driver or import_module("pynvml"))
    gpus.read("", recording)
    for reader in readers:
        reader(recording)
    answers = json.dumps(recording.answers, indent=1, sort_keys=True, ensure_ascii=False)
    # A recording without SYSFS is not valid, so that file is written last.
    return {NVML: answers + "\n", SYSFS: packed(root)}


def read(folder: Path, name: str = "") -> tuple[Topology, ...]:
    """Return the topology from each source of the machine recorded in ``folder``.

    ``name`` is the host's name, by default the folder's name. Raises MissingInputError if there is no
    recording, and DataError if it is damaged.
    """
    import msgspec

    name = name or folder.resolve().name
    if not (folder / SYSFS).exists():
        raise MissingInputError(
            f"{folder}: a folder, and no recording of a machine: {SYSFS} is not in it",
            hint=f"ccctl detect --record {folder / 'machine'} makes one; else give a file.",
        )
    listing, driver = _text(folder / SYSFS), driver_of(folder)
    with temporary_folders.folder("ccctl-recorded-") as place:
        root = place.resolve()
        unpack(listing, root, str(folder / SYSFS))
        parts = (machine.read(name, root), kfd.read(name, root))
    if driver is None:
        return parts
    try:
        of_driver = gpus.read(name, driver)
        # A value of the wrong type would fail later, far from here.
        msgspec.convert(msgspec.to_builtins(of_driver), Topology)
        return (*parts, of_driver)
    except (
        msgspec.MsgspecError,
        AttributeError,
        IndexError,
        KeyError,
        OverflowError,
        TypeError,
        ValueError,
    ) as error:
        # A driver's answers have the types that its library declares; answers in a file may have any type.
        problem = f"an answer that no driver gives: {error}"
        raise DataError(str(folder / NVML), [problem], hint="Record it again: detect --record.") from error


def driver_of(folder: Path) -> RecordedNvml | None:
    """Return the driver of the machine recorded in ``folder``; None if no driver's answers were recorded.

    Raises DataError if the recording is damaged.
    """
    answers = _answers(folder / NVML)
    return None if answers is None else RecordedNvml(answers, import_module("pynvml"))


def _text(path: Path) -> str:
    try:
        return read_text(path)
    except MissingInputError as error:
        error.hint = f"A recording of ccctl detect --record is a folder with {SYSFS} and {NVML} in it."
        raise


def _answers(path: Path) -> dict[str, dict[str, Any]] | None:
    """Return NVML's answers; None if the recording has none, as without NVIDIA GPUs."""
    if not path.exists():
        return None
    try:
        answers = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise DataError(str(path), [f"not whole JSON: {error}"]) from error
    if not isinstance(answers, dict) or not all(isinstance(known, dict) for known in answers.values()):
        raise DataError(str(path), ["expected answers by function and arguments"])
    return answers
