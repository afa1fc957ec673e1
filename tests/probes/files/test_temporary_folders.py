"""Temporary folders go with their block, and those of killed processes with the next one."""

import os
import signal
import subprocess
import sys

import pytest

from probes.files import temporary_folders

HOLDER = """
import sys
from pathlib import Path
from probes.files import temporary_folders as temporary
with temporary.folder("ours-", Path(sys.argv[1])) as path:
    (path / "file").write_text("x")
    print(path, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """A process that uses a temporary folder until its standard input ends."""
    command = [sys.executable, "-P", "-c", HOLDER, tmp_path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        yield process
        process.kill()


def test_a_folder_lasts_as_long_as_its_block(tmp_path):
    with temporary_folders.folder("ours-", tmp_path) as path:
        (path / "file").write_text("x")
        assert path.stat().st_mode & 0o777 == 0o700
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_a_living_process_stays_and_that_of_a_killed_one_goes(tmp_path, holder):
    with temporary_folders.folder("ours-", tmp_path):
        assert len(list(tmp_path.iterdir())) == 2
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert len(list(tmp_path.iterdir())) == 1
    with temporary_folders.folder("ours-", tmp_path) as path:
        assert list(tmp_path.iterdir()) == [path]


def test_a_shared_folder_stays_while_one_process_holds_it(tmp_path):
    path = tmp_path / "ours-0123456789abcdef"
    first, second = temporary_folders.hold(path), temporary_folders.hold(path)
    os.close(first)
    temporary_folders.sweep("ours-", tmp_path)
    assert path.exists()
    os.close(second)
    temporary_folders.sweep("ours-", tmp_path)
    assert not path.exists()


def test_only_folders_of_the_name_are_swept(tmp_path):
    (tmp_path / "ours-thesis").mkdir()
    (tmp_path / "other-0123456789abcdef").mkdir()
    (tmp_path / "ours-0123456789abcdef").symlink_to("ours-thesis")
    os.mkfifo(tmp_path / "ours-0123456789abcde0")
    with temporary_folders.folder("ours-", tmp_path):
        assert len(list(tmp_path.iterdir())) == 5


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make what belongs to another user")
def test_the_folder_of_another_user_stays(tmp_path):
    path = tmp_path / "ours-0123456789abcdef"
    path.mkdir()
    os.chown(path, 65534, 65534)
    temporary_folders.sweep("ours-", tmp_path)
    assert path.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make what belongs to another user")
def test_a_folder_that_another_user_has_planted_is_not_shared(tmp_path):
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 54321, 54321)
    with pytest.raises(PermissionError, match="belongs to another user"):
        temporary_folders.hold(tmp_path / "theirs")
