"""Folders that belong to this user, and what is removed of them."""

import os

import pytest

from probes.base.errors import UnavailableError
from probes.files import ownership

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make what belongs to another user")
STRANGER = 65534


def known(name):
    return name.startswith("our")


@pytest.fixture
def folder(tmp_path):
    """A folder with a file and a folder of ours."""
    path = tmp_path / "kept" / "one"
    ownership.make(path)
    (path / "ours.json").write_text("{}")
    (path / "our-run").mkdir()
    (path / "our-run" / "anything").write_text("x")
    return path


def test_what_is_ours_is_removed_once(folder):
    assert ownership.refuse_foreign(folder, known)
    assert ownership.remove(folder, known)
    assert not ownership.remove(folder, known)
    assert list(folder.parent.iterdir()) == []


@pytest.mark.parametrize("mask", [0, 0o077])
def test_a_folder_is_made_for_nobody_else_to_write(tmp_path, mask):
    before = os.umask(mask)
    try:
        ownership.make(tmp_path / "a" / "b")
    finally:
        os.umask(before)
    assert [place.stat().st_mode & 0o022 for place in (tmp_path / "a", tmp_path / "a" / "b")] == [0, 0]


def swap_for_link(place):
    place.rename(place.with_name("elsewhere"))
    place.symlink_to("elsewhere")


SPOILED = {
    "a link in its place": lambda folder: swap_for_link(folder),
    "a link on the way": lambda folder: swap_for_link(folder.parent),
    "a file of others": lambda folder: (folder / "thesis.tex").write_text("years"),
    "a folder that all may write to": lambda folder: folder.chmod(0o777),
    "a folder that a group may write to": lambda folder: folder.chmod(0o775),
    "the folder above": lambda folder: folder.parent.chmod(0o777),
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
def test_what_is_not_ours_is_left_as_it_is(folder, tmp_path, spoil):
    spoil(folder)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UnavailableError):
        ownership.remove(folder, known)
    assert sorted(tmp_path.rglob("*")) == before


@needs_root
@pytest.mark.parametrize("of", ["kept", "kept/one", "kept/one/ours.json"])
def test_what_belongs_to_another_user_is_left_as_it_is(folder, tmp_path, of):
    os.chown(tmp_path / of, STRANGER, STRANGER)
    with pytest.raises(UnavailableError):
        ownership.remove(folder, known)
    assert folder.exists()


def test_links_inside_are_removed_and_not_followed(folder, tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("kept")
    (folder / "our-link").symlink_to(tmp_path / "precious")
    (folder / "our-run" / "deeper").symlink_to(tmp_path / "precious")
    assert ownership.remove(folder, known)
    assert (tmp_path / "precious" / "file").read_text() == "kept"


def test_a_folder_in_a_sticky_one_may_be_ours(tmp_path):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    ownership.make(tmp_path / "shared" / "mine" / "one")
    assert ownership.remove(tmp_path / "shared" / "mine" / "one", known)
