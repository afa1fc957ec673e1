"""The state folder: whole files whatever ends a run, bounded, and nothing that no watch wrote."""

import gzip
import os
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from ccctl.artifacts import codec
from ccctl.errors import CannotWriteError, DataError, LockHeldError
from ccctl.watch import state as states
from ccctl.watch.state import opened, read_schedule
from probes.base.errors import UnavailableError
from probes.profiling.history import begun

NOON = datetime(2026, 11, 22, 12, 0, 5, tzinfo=UTC)


@pytest.fixture
def given(schedule, tmp_path):
    path = tmp_path / "schedule.json"
    codec.write(str(path), "schedule", schedule)
    return read_schedule(str(path))


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "state"


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_it_is_made_and_left_without_its_lock(folder):
    with opened(str(folder)) as state:
        assert names(folder) == ["lock"]
        assert state.folder == folder
    assert names(folder) == []


def test_one_run_at_a_time(folder):
    with opened(str(folder)):
        held = pytest.raises(LockHeldError, match=f"another watch has this folder .pid {os.getpid()}")
        with held, opened(str(folder)):
            pass
        assert names(folder) == ["lock"]
    with opened(str(folder)):
        pass


def test_the_lock_of_a_killed_run_is_taken_over(folder):
    folder.mkdir()
    (folder / "lock").write_text("pid 1, since 00:00:00\n")
    with opened(str(folder)):
        pass
    assert names(folder) == []


@pytest.mark.parametrize("name", ["notes.txt", "schedule-.json", "profile.json", "lock2"])
def test_what_no_watch_wrote_is_refused_and_left(folder, name):
    folder.mkdir()
    (folder / name).write_text("mine")
    refused = pytest.raises(UnavailableError, match=f"{folder}: holds '{name}', which ccctl did not write")
    with refused, opened(str(folder)):
        pass
    assert names(folder) == [name]


def test_a_folder_that_others_can_write_is_refused(folder):
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(UnavailableError, match="nobody else can write to"), opened(str(folder)):
        pass


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    place = str(tmp_path / "file" / "state")
    with pytest.raises((CannotWriteError, UnavailableError), match="file"), opened(place):
        pass


def test_the_given_schedule_becomes_current_and_stays_as_it_is(folder, given):
    with opened(str(folder)) as state:
        assert state.current(given) is given
        assert state.current_path.read_bytes() == given.content
        again = state.current(given)
    assert (again.content, again.sha256) == (given.content, given.sha256)
    assert [name[:9] for name in names(folder)] == ["current.j", "schedule-"]


def test_a_compressed_schedule_is_kept_plain(folder, schedule, tmp_path):
    path = tmp_path / "schedule.json.gz"
    codec.write(str(path), "schedule", schedule)
    given = read_schedule(str(path))
    with opened(str(folder)) as state:
        state.current(given)
        assert state.current_path.read_bytes() == gzip.decompress(path.read_bytes())


def test_schedules_are_kept_up_to_a_bound_and_the_newest_is_current(folder, given, monkeypatch):
    monkeypatch.setattr(states, "_MOST_SCHEDULES", 3)
    with opened(str(folder)) as state:
        kept = [state.adopt(b"%d" % number, NOON).name for number in range(12)]
        assert kept[:3] == [
            "schedule-20261122T120005Z.json",
            "schedule-20261122T120005Z-2.json",
            "schedule-20261122T120005Z-3.json",
        ]
        assert [path.name for path in state.schedules()] == kept[-3:]
        assert state.current_path.read_bytes() == b"11"


def test_what_cannot_be_written_leaves_what_was_current(folder, given, monkeypatch):
    with opened(str(folder)) as state:
        state.current(given)

        def full(path, content, mode=None):
            raise CannotWriteError(f"{path}: No space left on device")

        monkeypatch.setattr(states, "write_atomically", full)
        with pytest.raises(CannotWriteError):
            state.adopt(b"new", NOON)
        assert state.current(given).content == given.content


@pytest.mark.parametrize("content", [b"", b"{}", b'{"schema": "ccctl/profile/1", "body": {}}'])
def test_a_current_schedule_that_is_none_is_refused_with_its_path(folder, given, content):
    with opened(str(folder)) as state:
        state.current_path.write_bytes(content)
        with pytest.raises(DataError, match=str(state.current_path)):
            state.current(given)


def test_a_current_schedule_that_is_not_proven_is_refused(folder, given, schedule):
    wrong = replace(schedule, chunk=schedule.chunk[::-1].copy())
    with opened(str(folder)) as state:
        codec.write(str(state.current_path), "schedule", wrong)
        with pytest.raises(DataError, match=r"current\.json"):
            state.current(given)


def test_a_current_schedule_for_another_size_is_refused(folder, given, schedule):
    with opened(str(folder)) as state:
        codec.write(str(state.current_path), "schedule", replace(schedule, chunk_bytes=1 << 10))
        with pytest.raises(DataError, match="collective: expected the all_gather of 4194304 bytes among 4"):
            state.current(given)
        # A size is rounded up to whole bytes a chunk.
        codec.write(str(state.current_path), "schedule", replace(schedule, chunk_bytes=(1 << 20) + 1))
        assert state.current(given).schedule.chunk_bytes == (1 << 20) + 1


def test_a_history_is_read_back_and_that_of_other_links_refused(folder, samples):
    baseline = samples["profile"]
    with opened(str(folder)) as state:
        assert state.history(baseline, "b.json").runs == 0
        state.keep(begun(baseline), {})
        before = state.history_path.read_bytes()
        assert state.history(baseline, "b.json").is_of(baseline)
        other = replace(baseline, ranks=(*baseline.ranks[:1], replace(baseline.ranks[1], host="else")))
        with pytest.raises(DataError, match=r"hosts, src, dst: expected the 2 ranks and 2 links of b\.json"):
            state.history(other, "b.json")
        assert state.history_path.read_bytes() == before
        state.history_path.write_text("{")
        with pytest.raises(DataError, match=r"history\.json"):
            state.history(baseline, "b.json")
