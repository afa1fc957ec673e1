"""The cache of artifacts: what was kept under a key comes back, where nobody else could have put it."""

import pytest

from ccctl.artifacts.artifact_cache import ArtifactCache

KEY = {"ranks": 2, "hosts": ()}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return the folder of this user's artifacts."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "ccctl" / "artifacts"


def test_what_was_kept_comes_back_with_its_digest(folder, samples):
    kept = ArtifactCache().keep("profile", KEY, samples["profile"], {})
    found = ArtifactCache().read("profile", KEY)
    assert found is not None and found.artifact.sha256 == kept.sha256
    assert found.artifact.body.ranks == samples["profile"].ranks
    assert 0 <= found.age_s < 3600
    assert found.artifact.source == str(next(folder.iterdir()))
    assert ArtifactCache().path("profile", KEY) == next(folder.iterdir())


@pytest.mark.parametrize(("kind", "key"), [("profile", {**KEY, "ranks": 3}), ("selection", KEY)])
def test_another_key_has_nothing(folder, samples, kind, key):
    cache = ArtifactCache()
    cache.keep("profile", KEY, samples["profile"])
    assert cache.read(kind, key) is None


def test_a_file_that_was_changed_is_not_read(folder, samples):
    cache = ArtifactCache()
    cache.keep("profile", KEY, samples["profile"])
    (file,) = folder.iterdir()
    file.write_bytes(file.read_bytes().replace(b"1", b"2"))
    assert cache.read("profile", KEY) is None


def test_a_folder_that_others_can_write_keeps_nothing_and_says_why_once(folder, samples, caplog):
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    cache = ArtifactCache()
    for _ in range(2):
        cache.keep("profile", KEY, samples["profile"])
        assert cache.read("profile", KEY) is None
    assert list(folder.iterdir()) == []
    (record,) = caplog.records
    assert f"profiles and schedules in {folder} are not used: {folder} can be written by others" in (
        record.getMessage()
    )


def test_where_no_folder_can_be_what_is_made_is_given_and_not_kept(monkeypatch, samples):
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    cache = ArtifactCache()
    assert cache.keep("profile", KEY, samples["profile"]).body is samples["profile"]
    assert cache.read("profile", KEY) is None
