"""A cache of compiled loops is never needed: what is damaged, foreign or out of reach is done without."""

import os
import random
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from synth.kernels.loop_store import LoopStore, cache_folder, distrusted, problem_of

LABEL, CONTENT = b"a loop for these types", bytes(range(256)) * 4
STRANGER = 54321
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to act as two users")
TWICE = """
from synth.kernels.compiled import compiled

@compiled
def twice(x):
    return 2 * x
"""
LOOP = """
import logging, sys
sys.path[:0] = [{folder!r}, {here!r}]
if {shown}:
    logging.basicConfig(format="%(message)s")
from loop import twice
print(twice(21), sum(twice.stats.cache_hits.values()))
"""


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


def kept_in(folder):
    LoopStore(folder).write("a.loop", LABEL, CONTENT)
    return folder / "a.loop"


def test_what_is_kept_is_read_by_its_name_and_label_alone(tmp_path):
    kept_in(tmp_path / "cache")
    store = LoopStore(tmp_path / "cache")
    assert store.read("a.loop", LABEL) == CONTENT
    assert store.read("a.loop", LABEL[:-1]) is None and store.read("a.loop", LABEL + b"!") is None
    assert store.read("b.loop", LABEL) is None
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["a.loop"]


def test_a_file_cut_off_anywhere_is_not_there(tmp_path):
    path = kept_in(tmp_path)
    whole = path.read_bytes()
    store = LoopStore(tmp_path)
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        assert store.read("a.loop", LABEL) is None, size
    for more in (b"\0", whole):
        path.write_bytes(whole + more)
        assert store.read("a.loop", LABEL) is None


def test_a_file_with_one_wrong_bit_is_not_there(tmp_path):
    path = kept_in(tmp_path)
    whole = path.read_bytes()
    store = LoopStore(tmp_path)
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
    assert LoopStore(tmp_path).read("a.loop", LABEL) is None


def test_what_is_damaged_is_replaced(tmp_path):
    path = kept_in(tmp_path)
    path.write_bytes(b"rubbish")
    assert kept_in(tmp_path) == path
    assert LoopStore(tmp_path).read("a.loop", LABEL) == CONTENT


@as_root
def test_files_of_another_user_are_not_read(tmp_path):
    path = kept_in(tmp_path)
    os.chown(path, STRANGER, STRANGER)
    assert LoopStore(tmp_path).read("a.loop", LABEL) is None


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
    store = LoopStore(folder)
    assert store.read("a.loop", LABEL) is None
    store.write("b.loop", LABEL, CONTENT)
    assert not (path.parent / "b.loop").exists()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert (
        "can be written by others" if whose in ("group", "all", "all above") else "belongs to"
    ) in caplog.text
    assert "XDG_CACHE_HOME" in caplog.text and problem_of(folder)


def test_in_a_folder_with_the_sticky_bit_what_is_ours_is_used(tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    kept_in(tmp_path / "shared" / "cache")
    assert LoopStore(tmp_path / "shared" / "cache").read("a.loop", LABEL) == CONTENT
    assert distrusted(tmp_path / "shared")


@as_root
def test_another_user_that_makes_the_folder_first_is_not_trusted(open_folder):
    (open_folder / "shared").mkdir()
    (open_folder / "shared").chmod(0o1777)
    store = LoopStore(open_folder / "shared" / "cache")
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
        store = LoopStore(open_folder / "cache")
        assert store.read("a.loop", LABEL) == CONTENT
        assert not caplog.records
        with store.turn("b.loop"):
            store.write("b.loop", LABEL, CONTENT)
        assert "cannot be written" in problem_of(open_folder / "cache")
    assert len(caplog.records) == 1 and "cannot be kept" in caplog.text


@as_root
def test_the_folder_of_a_user_is_neither_read_nor_made_by_root(open_folder):
    home = open_folder / "home"
    home.mkdir()
    os.chown(home, STRANGER, STRANGER)
    with acting_as(STRANGER):
        kept_in(home / "cache")
    assert LoopStore(home / "cache").read("a.loop", LABEL) is None
    LoopStore(home / "other").write("a.loop", LABEL, CONTENT)
    assert not (home / "other").exists()


@pytest.mark.parametrize("place", ["/dev/null/cache", None])
def test_where_nothing_can_be_kept_it_is_said_once(caplog, place):
    store = LoopStore(place and Path(place))
    for name in ("a.loop", "b.loop"):
        assert store.read(name, LABEL) is None
        with store.turn(name):
            store.write(name, LABEL, CONTENT)
    assert len(caplog.records) == 1 and "each command compiles them anew" in caplog.text
    assert problem_of(place and Path(place))


@as_root
@pytest.mark.netns
def test_a_full_disk_keeps_nothing_and_leaves_nothing(tmp_path, caplog):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k,mode=700", "none", tmp_path], check=True)
    try:
        LoopStore(tmp_path).write("a.loop", LABEL, bytes(1 << 20))
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
    with pytest.raises(KeyboardInterrupt), LoopStore(tmp_path).turn("a.loop"):
        raise KeyboardInterrupt
    started = time.monotonic()
    with LoopStore(tmp_path).turn("a.loop"):
        assert time.monotonic() - started < 30
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"NUMBA_CACHE_DIR": "/a", "XDG_CACHE_HOME": "/b"}, "/a/ccctl"),
        ({"XDG_CACHE_HOME": "/b"}, "/b/ccctl/numba"),
        ({"XDG_CACHE_HOME": "b", "HOME": "/c"}, "/c/.cache/ccctl/numba"),
        ({"HOME": "/c"}, "/c/.cache/ccctl/numba"),
        ({"HOME": "c"}, None),
    ],
)
def test_where_loops_are_kept(monkeypatch, variables, expected):
    for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == (expected and Path(expected))


def run_loop(folder, *, shown=True, **variables):
    (folder / "loop.py").write_text(TWICE)
    os.utime(folder / "loop.py", (0, 0))
    code = LOOP.format(folder=str(folder), here=str(Path.cwd()), shown=shown)
    command = [sys.executable, "-P", "-c", code]
    return subprocess.run(command, env=os.environ | variables, capture_output=True, text=True)


def test_a_loop_whose_file_is_damaged_is_compiled_anew_and_kept(tmp_path):
    variables = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    assert run_loop(tmp_path, **variables).stdout.split() == ["42", "0"]
    (path,) = (tmp_path / "cache" / "ccctl").glob("*.loop")
    content = path.read_bytes()
    path.write_bytes(content[:-1000] + bytes(1000))
    again = run_loop(tmp_path, **variables)
    assert again.stdout.split() == ["42", "0"] and not again.stderr
    assert run_loop(tmp_path, **variables).stdout.split() == ["42", "1"]


def test_for_another_processor_a_loop_is_compiled_apart(tmp_path):
    variables = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    generic = variables | {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    for which in (variables, generic):
        assert run_loop(tmp_path, **which).stdout.split() == ["42", "0"]
    for which in (variables, generic):
        assert run_loop(tmp_path, **which).stdout.split() == ["42", "1"]


def test_without_a_place_to_keep_loops_a_library_computes_and_prints_nothing(tmp_path):
    (tmp_path / "file").touch()
    variables = {"NUMBA_CACHE_DIR": str(tmp_path / "file")}
    done = run_loop(tmp_path, shown=False, **variables)
    assert done.stdout.split() == ["42", "0"] and not done.stderr
    done = run_loop(tmp_path, **variables)
    assert done.stderr.count("cannot be kept") == len(done.stderr.splitlines()) == 1
