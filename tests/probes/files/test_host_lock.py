"""The lock of a host: one measurement of a user at a time, which no other user and no dead process holds."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from limits import HANG_S

from probes.base.errors import LockHeldError, UnavailableError
from probes.base.progress import SILENT
from probes.files import host_lock
from probes.files.host_lock import HostLock, folder, held


def test_the_second_is_told_who_holds_it_until_the_first_gives_it_back(tmp_path):
    first, second = HostLock("a", tmp_path / "locks"), HostLock("a", tmp_path / "locks")
    assert first.take() == ""
    assert second.take().startswith(f"pid {os.getpid()}, since ")
    other = HostLock("b", tmp_path / "locks")
    assert other.take() == ""
    other.release()
    first.release()
    assert second.take() == ""
    second.release()
    second.release()


def test_a_lock_leaves_no_file_and_what_the_dead_left_is_swept(tmp_path):
    place = tmp_path / "locks"
    place.mkdir()
    for name, age_s in (("profile-old", 1e6), ("profile-new", 0.0), ("other", 1e6)):
        (place / name).touch()
        moment = (place / name).stat().st_mtime - age_s
        os.utime(place / name, (moment, moment))
    lock = HostLock("a", place)
    lock.take()
    assert {path.name for path in place.iterdir()} == {"profile-a", "profile-new", "other"}
    lock.release()
    assert {path.name for path in place.iterdir()} == {"profile-new", "other"}


def test_a_killed_process_holds_nothing(tmp_path):
    place = tmp_path / "locks"
    program = (
        "import time; from pathlib import Path; from probes.files.host_lock import HostLock;"
        f"lock = HostLock('a', Path({str(place)!r})); print(repr(lock.take()), flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "''\n"
        assert HostLock("a", place).take().startswith(f"pid {other.pid}, ")
        other.send_signal(signal.SIGKILL)
        other.wait()
    lock = HostLock("a", place)
    assert lock.take() == ""
    lock.release()


def test_a_file_removed_between_opening_and_locking_is_no_lock(tmp_path, monkeypatch):
    place = tmp_path / "locks"
    opened, removed = host_lock._opened, []

    def opened_late(name, inside):
        file = opened(name, inside)
        if not removed:
            removed.append(name)
            (place / name).unlink()
        return file

    monkeypatch.setattr(host_lock, "_opened", opened_late)
    lock = HostLock("a", place)
    assert lock.take() == ""
    assert (place / "profile-a").exists()
    lock.release()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
def test_another_user_can_neither_hold_nor_plant_it(tmp_path):
    place = tmp_path / "locks"
    place.mkdir()
    os.chown(place, 65534, 65534)
    with pytest.raises(UnavailableError, match="of user 65534"):
        HostLock("a", place).take()
    os.chown(place, 0, 0)
    place.chmod(0o777)
    with pytest.raises(UnavailableError, match="nobody else can write"):
        HostLock("a", place).take()


def test_a_link_in_the_place_of_the_lock_is_not_followed(tmp_path):
    place, victim = tmp_path / "locks", tmp_path / "victim"
    place.mkdir()
    victim.write_text("precious")
    (place / "profile-a").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"):
        HostLock("a", place).take()
    assert victim.read_text() == "precious"


def test_the_folder_is_the_same_however_a_process_was_started(monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", "/elsewhere")
    assert "elsewhere" not in str(folder())
    monkeypatch.setenv("XDG_STATE_HOME", "/somewhere")
    assert folder() == Path("/somewhere/ccctl/locks")


class World:
    """Ranks as threads, which exchange values as MPI's ranks do."""

    def __init__(self, size):
        self.values = [None] * size
        self.barrier = threading.Barrier(size, timeout=HANG_S)


class Rank:
    def __init__(self, world, number):
        self.world, self.number = world, number

    def Get_rank(self):  # noqa: N802 - MPI's name
        return self.number

    def allgather(self, value):
        self.world.values[self.number] = value
        self.world.barrier.wait()
        found = list(self.world.values)
        self.world.barrier.wait()
        return found

    def bcast(self, value, root=0):
        return self.allgather(value)[root]


def outcomes(wait_s=0.0):
    """Return the results of two ranks of one host, each in a thread."""
    world, found = World(2), {}

    def work(number):
        try:
            with held(Rank(world, number), wait_s, SILENT) as unlocked:
                found[number] = unlocked
        except LockHeldError as error:
            found[number] = error.message

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return found


def test_all_ranks_get_the_locks_or_the_same_error(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert outcomes() == {0: [], 1: []}
    other = HostLock(host_lock._host())
    other.take()
    found = outcomes()
    assert found[0] == found[1]
    assert "another measurement of this user is under way (pid" in found[0]
    threading.Timer(0.2, other.release).start()
    assert outcomes(wait_s=10) == {0: [], 1: []}


def test_without_a_folder_of_its_own_it_measures_and_says_so(tmp_path, monkeypatch):
    (tmp_path / "ccctl").write_text("a file where a folder should be")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    found = outcomes()
    assert len(found[0]) == 1
    assert "is not locked against other measurements" in found[0][0]
