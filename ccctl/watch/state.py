"""The state folder of a watch: a history, the current schedule, and earlier current schedules.

Jobs load ``current.json``. It is a copy of the schedule and not a link, so jobs need only this file, and a
copy of the folder is complete. It is replaced by renaming, after the schedule is written as
``schedule-TIME.json``. However a run ends, each file is complete, and the next run continues from there.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ccctl.artifacts import PART, codec, exists, read_input, write_atomically
from ccctl.errors import CannotWriteError, DataError, LockHeldError
from probes.files import FileLock, ownership

if TYPE_CHECKING:
    from probes.link_costs import Profile
    from probes.profiling import History
    from synth.schedules import Schedule

__all__ = ["ScheduleFile", "StateFolder", "opened", "read_schedule"]

_HISTORY, _CURRENT, _LOCK = "history.json", "current.json", "lock"
_SCHEDULE = re.compile(r"schedule-[0-9]{8}T[0-9]{6}Z(-[0-9]+)?\.json")
# Only this many schedules are kept, so that a watch that runs for years does not fill the disk. The oldest
# are deleted.
_MOST_SCHEDULES = 20


@dataclass(frozen=True, eq=False)
class ScheduleFile:
    """A schedule that was read and checked, with the name, digest and bytes of its file."""

    schedule: Schedule
    source: str
    sha256: str
    content: bytes


@dataclass(frozen=True)
class StateFolder:
    """An open state folder; no other run can open it at the same time."""

    folder: Path

    @property
    def current_path(self) -> Path:
        """The file that jobs load."""
        return self.folder / _CURRENT

    @property
    def history_path(self) -> Path:
        return self.folder / _HISTORY

    def history(self, baseline: Profile, source: str) -> History:
        """Return the history of the links of ``baseline``, an empty history if none is kept.

        Raises DataError if the file is no history, or has other ranks or links than ``baseline``, the profile
        in the file ``source``.
        """
        from probes.profiling import begun

        path = str(self.history_path)
        if not exists(path):
            return begun(baseline)
        found: History = codec.read(path, "history").body
        if not found.is_of(baseline):
            raise DataError(
                path,
                [
                    f"hosts, src, dst: expected the {len(baseline.ranks)} ranks and "
                    f"{len(baseline.links.src)} links of {source}, found {len(found.hosts)} ranks and "
                    f"{found.links} links that differ"
                ],
                hint="Name another folder with --state for this baseline, or remove the old one.",
            )
        return found

    def keep(self, history: History, inputs: Mapping[str, str]) -> None:
        """Replace the history; raises CannotWriteError."""
        codec.write(str(self.history_path), "history", history, inputs)

    def current(self, given: ScheduleFile) -> ScheduleFile:
        """Return the schedule that jobs load now; if there is none, make ``given`` the current one.

        Raises DataError if the file is no proven schedule for the same collective and size.
        """
        path = str(self.current_path)
        if not exists(path):
            self.adopt(given.content, datetime.now(UTC))
            return given
        found = read_schedule(path)
        _refuse_other(found, given)
        return found

    def adopt(self, content: bytes, moment: datetime) -> Path:
        """Make a schedule the current one; return its file among the kept schedules.

        Raises CannotWriteError; the current schedule is then unchanged.
        """
        stem = f"schedule-{moment:%Y%m%dT%H%M%SZ}"
        # Continue after the highest number of the same second, because lower ones may have been removed
        # already.
        alike = [path.stem for path in self.schedules() if path.name.startswith(stem)]
        number = int(alike[-1].removeprefix(stem)[1:] or 1) + 1 if alike else 1
        name = self.folder / (f"{stem}-{number}.json" if alike else f"{stem}.json")
        write_atomically(name, content)
        write_atomically(self.current_path, content)
        for old in self.schedules()[:-_MOST_SCHEDULES]:
            with contextlib.suppress(OSError):
                old.unlink()
        return name

    def schedules(self) -> list[Path]:
        """Return the schedules that were current, oldest first."""
        found = [path for path in self.folder.iterdir() if _SCHEDULE.fullmatch(path.name)]
        return sorted(found, key=lambda path: (path.name[:25], len(path.name), path.name))


@contextlib.contextmanager
def opened(path: str) -> Iterator[StateFolder]:
    """Open the state folder ``path`` for this run alone; make it if it is missing.

    Raises UnavailableError if other users can write there or if it holds foreign files, LockHeldError if
    another run has it, and CannotWriteError if it cannot be made.
    """
    place = Path(os.path.realpath(path))
    lock = FileLock(_LOCK, place)
    try:
        ownership.make(place)
        ownership.refuse_foreign(place, _is_ours)
        holder = lock.take()
    except OSError as error:
        raise CannotWriteError(
            f"{path}: {error.strerror}", hint="Name a folder that you can write."
        ) from error
    if holder:
        raise LockHeldError(
            f"{path}: another watch has this folder ({holder})", hint="Try later, or name another folder."
        )
    try:
        yield StateFolder(place)
    finally:
        lock.release()


def read_schedule(path: str) -> ScheduleFile:
    """Return a schedule that the checker accepts, with its bytes; raises the errors of the codec.

    A schedule that the checker rejects raises DataError.
    """
    from probes.files import inflated
    from synth.check import check

    content, source = read_input(path)
    found = codec.decode(content, source, "schedule")
    if findings := check(found.body):
        raise DataError(
            source, findings, hint="It is not proven, so nothing is done with it; see ccctl verify."
        )
    return ScheduleFile(found.body, source, found.sha256, inflated(content, source))


def _refuse_other(found: ScheduleFile, given: ScheduleFile) -> None:
    mine, theirs = found.schedule.collective, given.schedule.collective
    size = mine.total_bytes(found.schedule.chunk_bytes)
    wanted = theirs.total_bytes(given.schedule.chunk_bytes)
    # Chunks have whole bytes, so rounding may add one byte for each chunk.
    if mine.same_but_for_chunks(theirs) and abs(size - wanted) <= max(mine.chunks, theirs.chunks):
        return
    raise DataError(
        found.source,
        [
            f"collective: expected the {theirs.label} of {wanted} bytes among {theirs.ranks} ranks that "
            f"{given.source} is for, found {mine.label} of {size} bytes among {mine.ranks} ranks"
        ],
        hint="Name another folder with --state for this schedule, or remove the old one.",
    )


def _is_ours(name: str) -> bool:
    known = name in (_HISTORY, _CURRENT, _LOCK)
    return known or bool(_SCHEDULE.fullmatch(name) or PART.fullmatch(name))
