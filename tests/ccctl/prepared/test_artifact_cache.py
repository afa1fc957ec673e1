"""The cache of artifacts: what was kept under a key comes back, where nobody else could have put it."""

import pytest

from ccctl.prepared.artifact_cache import ArtifactCache, cache_folder

KEY = {"ranks": 2, "hosts": ()}


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "ccctl" / "bench"


def test_what_was_kept_comes_back_with_its_digest(folder, samples):
    kept = ArtifactCache(folder).keep("profile", KEY, samples["profile"], {})
    found = ArtifactCache(folder).read("profile", KEY)
    assert found is not None and found.artifact.sha256 == kept.sha256
    assert found.artifact.body.ranks == samples["profile"].ranks
    assert 0 <= found.age_s < 3600
    assert found.artifact.source == str(next(folder.iterdir()))


@pytest.mark.parametrize(("kind", "key"), [("profile", {**KEY, "ranks": 3}), ("selection", KEY)])
def test_another_key_has_nothing(folder, samples, kind, key):
    cache = ArtifactCache(folder)
    cache.keep("profile", KEY, samples["profile"])
    assert cache.read(kind, key) is None


def test_a_file_that_was_changed_is_not_read(folder, samples):
    cache = ArtifactCache(folder)
    cache.keep("profile", KEY, samples["profile"])
    (file,) = folder.iterdir()
    file.write_bytes(file.read_bytes().replace(b"1", b"2"))
    assert cache.read("profile", KEY) is None


def test_a_folder_that_others_can_write_keeps_nothing_and_says_why(folder, samples):
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    cache = ArtifactCache(folder)
    cache.keep("profile", KEY, samples["profile"])
    assert cache.problem == f"{folder} can be written by others"
    assert cache.read("profile", KEY) is None
    assert list(folder.iterdir()) == []


def test_it_is_below_the_users_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "ccctl" / "bench"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "ccctl" / "bench"
