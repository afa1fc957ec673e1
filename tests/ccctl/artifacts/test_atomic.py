"""Files are replaced whole, and what killed writers leave is cleared away, but nothing else."""

import contextlib
import os
import signal
import subprocess
import sys
import threading

import pytest

from ccctl.artifacts import atomic
from ccctl.artifacts.atomic import PART, write_atomically
from ccctl.errors import CannotWriteError

PLANTED = ".ccctl-0123456789abcdef.part"


@contextlib.contextmanager
def writing(path):
    """A process that has begun to replace ``path`` and waits."""
    script = """
import sys
from pathlib import Path
from ccctl.artifacts.atomic import write_atomically

def parts():
    yield b"new"
    print("begun", flush=True)
    sys.stdin.read()

write_atomically(Path(sys.argv[1]), parts())
"""
    command = [sys.executable, "-P", "-c", script, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout.readline() == "begun\n"
        yield writer


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_what_a_killed_writer_left_goes_at_the_next_write_of_any_file_in_the_folder(tmp_path):
    path = tmp_path / "o.json"
    path.write_bytes(b"old")
    with writing(path) as writer:
        writer.send_signal(signal.SIGKILL)
    assert path.read_bytes() == b"old"
    assert [name for name in names(tmp_path) if PART.fullmatch(name)]
    write_atomically(tmp_path / "other.csv", b"new")
    assert names(tmp_path) == ["o.json", "other.csv"]


def test_the_part_of_a_living_writer_is_left_alone(tmp_path):
    with writing(tmp_path / "o.json") as writer:
        write_atomically(tmp_path / "o.json", b"first")
        assert len(names(tmp_path)) == 2
        writer.communicate("")
    assert writer.returncode == 0
    assert names(tmp_path) == ["o.json"]
    assert (tmp_path / "o.json").read_bytes() == b"new"


def test_what_is_planted_under_the_name_of_a_part_neither_stops_nor_leads_a_writer(tmp_path):
    os.mkfifo(tmp_path / PLANTED)
    os.mkfifo(tmp_path / ".o.json.x.part")
    (tmp_path / PLANTED.replace("0", "1")).mkdir()
    (tmp_path / "precious").write_text("kept")
    (tmp_path / PLANTED.replace("0", "2")).symlink_to("precious")
    write_atomically(tmp_path / "o.json", b"new")
    assert (tmp_path / "o.json").read_bytes() == b"new"
    assert (tmp_path / "precious").read_text() == "kept"
    assert len(names(tmp_path)) == 6


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file that belongs to another user")
def test_the_part_of_another_user_is_left_alone(tmp_path):
    (tmp_path / PLANTED).write_bytes(b"theirs")
    os.chown(tmp_path / PLANTED, 65534, 65534)
    write_atomically(tmp_path / "o.json", b"new")
    assert names(tmp_path) == [PLANTED, "o.json"]


def test_a_part_that_exists_already_is_never_written_to(tmp_path, monkeypatch):
    (tmp_path / "precious").write_text("kept")
    (tmp_path / ".ccctl-taken.part").symlink_to("precious")
    monkeypatch.setattr(atomic.secrets, "token_hex", lambda size: "taken")
    with pytest.raises(CannotWriteError):
        write_atomically(tmp_path / "o.json", b"new")
    assert (tmp_path / "precious").read_text() == "kept"


def test_many_writers_at_once_leave_one_whole_file(tmp_path):
    contents = [str(number).encode() * 10_000 for number in range(8)]

    def write(content):
        for _ in range(20):
            write_atomically(tmp_path / "o.json", content)

    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert names(tmp_path) == ["o.json"]
    assert (tmp_path / "o.json").read_bytes() in contents


def test_a_name_as_long_as_the_file_system_takes_can_be_written(tmp_path):
    path = tmp_path / ("n" * 250 + ".json")
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"


def test_a_write_that_fails_leaves_nothing(tmp_path):
    def parts():
        yield b"some"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "o.json", parts())
    assert names(tmp_path) == []


def test_where_files_cannot_be_locked_they_are_written_all_the_same(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(atomic.fcntl, "flock", refuse)
    (tmp_path / PLANTED).write_bytes(b"perhaps of a living writer")
    write_atomically(tmp_path / "o.json", b"new")
    assert names(tmp_path) == [PLANTED, "o.json"]


def test_a_symbolic_link_stays_one(tmp_path):
    (tmp_path / "target").write_bytes(b"old")
    (tmp_path / "link").symlink_to("target")
    write_atomically(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == b"new"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to act as two users")
def test_a_link_that_another_user_left_where_all_can_write_is_not_followed(tmp_path):
    private, shared = tmp_path / "private", tmp_path / "shared"
    private.write_text("mine")
    shared.mkdir()
    shared.chmod(0o1777)
    link = shared / "out.json"
    link.symlink_to(private)
    os.chown(link, 54321, 54321, follow_symlinks=False)
    with pytest.raises(CannotWriteError, match="symbolic link of user 54321"):
        write_atomically(link, b"theirs")
    assert private.read_text() == "mine"
