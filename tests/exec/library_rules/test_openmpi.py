"""Open MPI's dynamic rules: written, read back, merged, and taken by the library that is installed."""

import os

import pytest

from exec.launcher.run import launch
from exec.library_rules.openmpi import RuleEntry, merged, read_rules, with_rules, write_rules
from probes.base.errors import DataError

OPEN = (RuleEntry(0, 0),)
RING = (RuleEntry(0, 3), RuleEntry(8192, 4, 2, 1024))
HANDMADE = """# from a colleague
1 # collectives
2 # all_reduce
1 # communicator sizes
64 # ranks
2 # message sizes
0 3 0 0
65536 4 0 0
"""


def test_what_is_written_is_read_back():
    table = with_rules("all_reduce", 4, RING)
    assert table == {2: {0: OPEN, 4: RING, 5: OPEN}}
    text = write_rules(table, ["a note"], {2: {4: "ring"}})
    assert read_rules(text, "rules") == table
    assert "8192 4 2 1024  # ring" in text


def test_merging_keeps_what_other_sizes_and_collectives_have():
    old = read_rules(HANDMADE, "old")
    found = merged(old, with_rules("all_reduce", 8, RING))
    assert found[2] == {0: OPEN, 8: RING, 9: OPEN, 64: old[2][64]}
    assert merged(found, with_rules("all_gather", 8, RING))[2] == found[2]
    assert merged(old, with_rules("all_reduce", 64, RING))[2][64] == RING


def test_above_the_new_size_holds_what_held_before():
    old = {2: {0: RING}}
    assert merged(old, with_rules("all_reduce", 8, OPEN + RING[1:]))[2] == {
        0: RING,
        8: OPEN + RING[1:],
        9: RING,
    }


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "the end of the file"),
        (HANDMADE.replace("64 #", "many #"), "'many'"),
        (HANDMADE + "7", "expected the end of the file"),
        ("rule-file-version-2\n" + HANDMADE, "rule-file-version-2"),
        (HANDMADE.replace("2 # all_reduce", "99"), "a number up to 21"),
    ],
)
def test_what_is_no_table_is_refused(text, found):
    with pytest.raises(DataError, match=found):
        read_rules(text, "rules")


@pytest.mark.mpi
def test_the_library_takes_the_algorithms_of_the_rules(tmp_path, monkeypatch):
    small, large, ranks = 100, 10_000, 4
    path = tmp_path / "rules.conf"
    path.write_text(write_rules(with_rules("all_reduce", ranks, [RuleEntry(0, 4), RuleEntry(4096, 1)])))
    for name, value in {
        "use_dynamic_rules": "1",
        "dynamic_rules_filename": str(path),
        "priority": "100",
    }.items():
        monkeypatch.setitem(os.environ, f"OMPI_MCA_coll_tuned_{name}", value)
    names = ("", "0", "basic_linear", "ring", "recursive_doubling")
    found = launch("rules_ranks:sums", ((small, large), names), ranks=ranks)
    for sums in found.values():
        assert len({sums[name] for name in names[2:]}) == 3
    assert found[ranks, small][""] == found[ranks, small]["ring"]
    assert found[ranks, large][""] == found[ranks, large]["basic_linear"]
    # On fewer ranks the rules leave it to the library.
    for count in (small, large):
        assert found[ranks - 1, count][""] == found[ranks - 1, count]["0"]
    assert found[ranks - 1, small][""] != found[ranks - 1, small]["ring"]
