"""Schedules that bench makes without an artifact, for the ranks of a profile; kept for the next run."""

import pytest

from ccctl.artifacts import codec
from ccctl.errors import MissingInputError, TimeoutExpired, UsageError
from ccctl.launching import World
from ccctl.prepared import contestant
from ccctl.prepared.contestant import BenchWorkload, prepared
from synth.msccl import beyond

SIZES = (1 << 10, 1 << 16)


def asking(folder):
    """A function that asks for a collective on the two ranks of the profile in a folder."""

    def of(**given):
        asked = {
            "collective": "all_reduce",
            "root": None,
            "sizes": SIZES,
            "world": World(None),
            "race": False,
        }
        return BenchWorkload(**{**asked, "profile": str(folder / "profile.json"), **given})

    return of


@pytest.fixture
def wanted(tmp_path, monkeypatch, samples):
    """Such a function, where nothing is kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    codec.write(str(tmp_path / "profile.json"), "profile", samples["profile"])
    return asking(tmp_path)


@pytest.fixture(scope="module")
def first(tmp_path_factory, samples):
    """(what the first run prepares, the time it has left, its folder with its cache)."""
    folder = tmp_path_factory.mktemp("first")
    codec.write(str(folder / "profile.json"), "profile", samples["profile"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        return *prepared(asking(folder)()), folder


@pytest.fixture
def later(first, monkeypatch):
    """Such a function, where the first run has kept what it made."""
    *_, folder = first
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    return asking(folder)


def test_there_is_a_proven_schedule_for_every_size(first):
    found, left_s, _ = first
    assert left_s is None
    for size in SIZES:
        program = found.at(size).program
        assert (program.collective.kind, program.ranks) == ("all_reduce", 2)
    assert found.proven.inputs.keys() == {"profile", "selection"}


def test_schedules_are_kept_for_this_profile_collective_and_sizes(first, later, monkeypatch, capsys):
    made, *_ = first
    swept = []
    monkeypatch.setattr(contestant, "_synthesize_sizes", lambda *asked: swept.append(asked) or made.selection)
    again, _ = prepared(later())
    assert (swept, again.proven.inputs) == ([], made.proven.inputs)
    assert "selection: the one kept by an earlier run" in capsys.readouterr().err
    prepared(later(fresh=True))
    prepared(later(sizes=(1 << 12,)))
    assert len(swept) == 2


def test_schedules_for_a_runtime_are_kept_apart(later, capsys):
    found, _ = prepared(later(runtime="rccl"))
    assert "selection: the one kept by an earlier run" not in capsys.readouterr().err
    assert all(beyond(found.at(size).program, "rccl") == [] for size in SIZES)
    with pytest.raises(UsageError, match="expected msccl"):
        prepared(later(runtime="nccl"))


def test_a_root_is_part_of_what_is_asked(wanted):
    assert prepared(wanted(collective="Broadcast", root=1))[0].proven.program.collective.root == 1
    assert prepared(wanted(collective="broadcast@1"))[0].proven.program.collective.root == 1


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"collective": "all_sum"}, UsageError, "unknown collective"),
        ({"collective": "all_reduce:0-1"}, UsageError, "expected one collective of all ranks"),
        ({"collective": "reduce", "root": 2}, UsageError, "-r 2: there is no such rank among 2"),
        ({"profile": "none.json"}, MissingInputError, "none.json"),
        ({"timeout_s": 1e-9}, TimeoutExpired, "not done within 1e-09 s"),
        ({"world": World(4)}, UsageError, "-n asks for 4 ranks, .*profile.json is of 2"),
        ({"profile": None, "world": World(1)}, UsageError, "a collective needs two ranks"),
    ],
)
def test_what_cannot_be_is_refused(wanted, given, error, said):
    with pytest.raises(error, match=said):
        prepared(wanted(**given))


def test_ranks_that_run_already_are_refused(wanted, monkeypatch):
    monkeypatch.setattr(contestant, "started_by_mpi", lambda: True)
    with pytest.raises(UsageError, match="outside mpirun and srun"):
        prepared(wanted())


@pytest.mark.parametrize(
    ("seconds", "told"), [(0, "0 s"), (59, "59 s"), (120, "2 min"), (7200, "2 h"), (864_000, "10 d")]
)
def test_ages_are_told_in_one_unit(seconds, told):
    assert contestant._age(seconds) == told
