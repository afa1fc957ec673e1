"""A cache is never needed: damaged, foreign or unreachable entries are ignored."""

import os
import random
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from probes.files.file_cache import FileCache, user_folder

LABEL, CONTENT = b"a loop for these types", bytes(range(256)) * 4
STRANGER = 54321
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to act as two users")


@contextmanager
def acting_as(uid):
    os.setegid(uid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@pytest.fixture
def open_folder(tmp_path):
    """A folder that a stranger can reach, too: those of pytest are its user's alone."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def cache_in(folder, most_age_s=None):
    return FileCache(folder, "loops", "they are compiled anew", most_age_s)


def kept_in(folder):
    cache_in(folder).write("a.loop", LABEL, CONTENT)
    return folder / "a.loop"


def test_what_is_kept_is_read_by_its_name_and_label_alone(tmp_path):
    kept_in(tmp_path / "cache")
    store = cache_in(tmp_path / "cache")
    assert store.read("a.loop", LABEL) == CONTENT
    assert store.read("a.loop", LABEL[:-1]) is None and store.read("a.loop", LABEL + b"!") is None
    assert store.read("b.loop", LABEL) is None
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["a.loop"]


def test_a_file_cut_off_anywhere_is_not_there(tmp_path):
    path = kept_in(tmp_path)
    whole = path.read_bytes()
    store = cache_in(tmp_path)
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        assert store.read("a.loop", LABEL) is None, size
    for more in (b"\0", whole):
        path.write_bytes(whole + more)
        assert store.read("a.loop", LABEL) is None


def test_a_file_with_one_wrong_bit_is_not_there(tmp_path):
    path = kept_in(tmp_path)
    whole = path.read_bytes()
    store = cache_in(tmp_path)
    for place in range(len(whole)):
        wrong = bytearray(whole)
        wrong[place] ^= 1 << random.Random(place).randrange(8)
        path.write_bytes(wrong)
        assert store.read("a.loop", LABEL) is None, place


@pytest.mark.parametrize("wrong", ["folder", "fifo", "link", "sparse", "writable"])
def test_what_is_no_file_of_ours_is_not_opened_for_long(tmp_path, wrong):
    path = kept_in(tmp_path)
    if wrong == "writable":
        path.chmod(0o666)
    else:
        other = path.rename(tmp_path / "other")
        if wrong == "folder":
            path.mkdir()
        elif wrong == "fifo":
            os.mkfifo(path)
        elif wrong == "link":
            path.symlink_to(other)
        else:
            with path.open("wb") as stream:
                stream.truncate(1 << 40)
    assert cache_in(tmp_path).read("a.loop", LABEL) is None


def test_what_is_damaged_is_replaced(tmp_path):
    path = kept_in(tmp_path)
    path.write_bytes(b"rubbish")
    assert kept_in(tmp_path) == path
    assert cache_in(tmp_path).read("a.loop", LABEL) == CONTENT


@as_root
def test_files_of_another_user_are_not_read(tmp_path):
    path = kept_in(tmp_path)
    os.chown(path, STRANGER, STRANGER)
    assert cache_in(tmp_path).read("a.loop", LABEL) is None


@as_root
@pytest.mark.parametrize("whose", ["folder", "above", "link", "group", "all", "all above"])
def test_a_folder_that_others_could_change_is_neither_read_nor_written(tmp_path, caplog, whose):
    above = tmp_path / "above"
    path = kept_in(above / "cache")
    folder = path.parent
    if whose in ("folder", "above"):
        os.chown(folder if whose == "folder" else above, STRANGER, STRANGER)
    elif whose == "link":
        folder = tmp_path / "link"
        folder.symlink_to(path.parent)
        os.chown(folder, STRANGER, STRANGER, follow_symlinks=False)
    elif whose == "group":
        os.chown(folder, 0, STRANGER)
        folder.chmod(0o775)
    else:
        (folder if whose == "all" else above).chmod(0o777)
    store = cache_in(folder)
    assert store.read("a.loop", LABEL) is None
    store.write("b.loop", LABEL, CONTENT)
    assert not (path.parent / "b.loop").exists()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert (
        "can be written by others" if whose in ("group", "all", "all above") else "belongs to"
    ) in caplog.text
    assert "XDG_CACHE_HOME" in caplog.text and store.problem


def test_in_a_folder_with_the_sticky_bit_what_is_ours_is_used(tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    kept_in(tmp_path / "shared" / "cache")
    assert cache_in(tmp_path / "shared" / "cache").read("a.loop", LABEL) == CONTENT
    assert cache_in(tmp_path / "shared").problem


@as_root
def test_another_user_that_makes_the_folder_first_is_not_trusted(open_folder):
    (open_folder / "shared").mkdir()
    (open_folder / "shared").chmod(0o1777)
    store = cache_in(open_folder / "shared" / "cache")
    assert store.read("a.loop", LABEL) is None
    with acting_as(STRANGER):
        kept_in(open_folder / "shared" / "cache")
    assert store.read("a.loop", LABEL) is None
    store.write("b.loop", LABEL, CONTENT)
    assert not (open_folder / "shared" / "cache" / "b.loop").exists()


@as_root
def test_what_root_has_filled_is_read_by_all_and_changed_by_none(open_folder, caplog):
    kept_in(open_folder / "cache")
    with acting_as(STRANGER):
        store = cache_in(open_folder / "cache")
        assert store.read("a.loop", LABEL) == CONTENT
        assert not caplog.records
        with store.turn("b.loop"):
            store.write("b.loop", LABEL, CONTENT)
        assert "cannot be written" in store.problem
    assert len(caplog.records) == 1 and "cannot be kept" in caplog.text


@as_root
def test_the_folder_of_a_user_is_neither_read_nor_made_by_root(open_folder):
    home = open_folder / "home"
    home.mkdir()
    os.chown(home, STRANGER, STRANGER)
    with acting_as(STRANGER):
        kept_in(home / "cache")
    assert cache_in(home / "cache").read("a.loop", LABEL) is None
    cache_in(home / "other").write("a.loop", LABEL, CONTENT)
    assert not (home / "other").exists()


@pytest.mark.parametrize("place", ["/dev/null/cache", None])
def test_where_nothing_can_be_kept_it_is_said_once(caplog, place):
    store = cache_in(place and Path(place))
    for name in ("a.loop", "b.loop"):
        assert store.read(name, LABEL) is None
        with store.turn(name):
            store.write(name, LABEL, CONTENT)
    assert len(caplog.records) == 1 and "they are compiled anew" in caplog.text
    assert store.problem


@as_root
@pytest.mark.netns
def test_a_full_disk_keeps_nothing_and_leaves_nothing(tmp_path, caplog):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k,mode=700", "none", tmp_path], check=True)
    try:
        cache_in(tmp_path).write("a.loop", LABEL, bytes(1 << 20))
        left = list(tmp_path.iterdir())
    finally:
        subprocess.run(["umount", tmp_path], check=True)
    assert not left and "No space left" in caplog.text


def test_what_killed_writers_left_is_removed_by_the_next(tmp_path):
    for name in ("x.loop.0.part", "x.loop.turn"):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, 0))
    (tmp_path / "y.loop.1.part").touch()
    kept_in(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.loop", "y.loop.1.part"]


def test_a_turn_ends_with_its_block_whatever_ends_it(tmp_path):
    with pytest.raises(KeyboardInterrupt), cache_in(tmp_path).turn("a.loop"):
        raise KeyboardInterrupt
    started = time.monotonic()
    with cache_in(tmp_path).turn("a.loop"):
        assert time.monotonic() - started < 30
    assert not list(tmp_path.iterdir())


def test_what_is_old_goes_when_something_is_kept(tmp_path):
    path = kept_in(tmp_path)
    os.utime(path, (0, 0))
    cache_in(tmp_path).write("b.loop", LABEL, CONTENT)
    assert path.exists()
    cache_in(tmp_path, most_age_s=86_400.0).write("c.loop", LABEL, CONTENT)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.loop", "c.loop"]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/b/ccctl/kept"),
        ({"XDG_CACHE_HOME": "b", "HOME": "/c"}, "/c/.cache/ccctl/kept"),
        ({"HOME": "/c"}, "/c/.cache/ccctl/kept"),
        ({"HOME": "c"}, None),
    ],
)
def test_where_a_user_keeps_files(monkeypatch, variables, expected):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert user_folder("kept") == (expected and Path(expected))
