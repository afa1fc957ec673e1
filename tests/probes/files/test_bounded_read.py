import gzip
import io
import os
import subprocess
import sys

import pytest
from hypothesis import given, strategies as st

from probes.base.errors import DataError, MissingInputError
from probes.files.bounded_read import MOST_BYTES, decoded, inflated, read_bytes, read_stream, read_text


def test_a_file_is_read_whole(tmp_path):
    (tmp_path / "x").write_bytes(b"abc" * 1_000_000)
    assert read_bytes(tmp_path / "x") == b"abc" * 1_000_000


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("", "no such file"),
        ("nothing", "no such file"),
        ("x\0y", "null byte"),
        ("9" * 5000, "too long"),
        ("folder", "a folder"),
        ("pipe", "a named pipe"),
        ("/dev/zero", "a device"),
        ("/dev/null", "a device"),
        ("file/inner", "Not a directory"),
    ],
)
def test_what_is_no_file_is_refused_at_once(tmp_path, monkeypatch, name, found):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(MissingInputError, match=found):
        read_bytes(name)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("profil.json", "did you mean 'profile.json'?"), ("other.json", ""), ("none/profile.json", "")],
)
def test_a_file_that_is_not_there_is_told_with_the_one_that_is_meant(tmp_path, monkeypatch, name, hint):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "profile.json").touch()
    with pytest.raises(MissingInputError) as caught:
        read_bytes(name)
    assert caught.value.hint == hint


def test_a_file_beyond_the_bound_is_not_read(tmp_path):
    with (tmp_path / "sparse").open("wb") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(DataError, match="at most 256 MiB, found 1099511627776 bytes"):
        read_bytes(tmp_path / "sparse")


def test_a_stream_without_end_is_read_to_the_bound_alone():
    class Endless(io.RawIOBase):
        given = 0

        def read(self, size=-1):
            self.given += size
            return b"x" * size

    stream = Endless()
    with pytest.raises(DataError, match="at most 4 MiB, found more"):
        read_stream(stream, "stdin", 4 << 20)
    assert stream.given <= 6 << 20


def test_a_compressed_file_expands_to_the_bound_alone():
    bomb = gzip.compress(gzip.compress(bytes(1 << 24)) + bytes(1 << 24))
    with pytest.raises(DataError, match="at most 1 MiB, found more when decompressed"):
        inflated(bomb, "x.gz", 1 << 20)
    assert inflated(gzip.compress(b"abc"), "x.gz") == b"abc"
    with pytest.raises(DataError, match="not a whole gzip file"):
        inflated(gzip.compress(b"abc" * 1000)[:-9], "x.gz")


def test_a_pipe_that_the_shell_opened_is_read():
    script = "import sys; from probes.files.bounded_read import read_bytes; print(read_bytes(sys.argv[1]))"
    reader = f"{sys.executable} -P -c '{script}'"
    command = f"{reader} <(printf abc); printf def | {reader} /dev/stdin"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["b'abc'", "b'def'"]


def test_text_is_utf_8_with_or_without_a_mark(tmp_path):
    (tmp_path / "x").write_text("zwölf", "utf-8-sig")
    assert read_text(tmp_path / "x") == "zwölf"
    with pytest.raises(DataError, match="found UTF-16"):
        decoded("zwölf".encode("utf-16"), "x")


@given(st.binary())
def test_any_bytes_are_text_or_refused(content):
    try:
        assert isinstance(decoded(content, "x"), str)
        assert isinstance(inflated(content, "x"), bytes)
    except DataError:
        pass


def test_the_bound_leaves_room_for_large_artifacts():
    # 4 million links, each with two ranks of 7 characters and two numbers of 22.
    assert MOST_BYTES >= 4_000_000 * 60
