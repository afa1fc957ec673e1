"""The sizes of `--counts`, as a list and from files."""

from __future__ import annotations

import pytest

from ccctl.arguments.counts import uneven_collective
from ccctl.errors import DataError, UsageError
from synth.portfolio.request import CollectiveRequest


def sizes_of(counts, ranks, kind="all_gather"):
    ((request,), _) = uneven_collective((CollectiveRequest(kind),), counts, ranks, None)
    return request.sets.blocks.size_bytes.tolist()


def test_a_list_and_files_of_text_csv_and_json_read_alike(tmp_path):
    expected = [4 << 20, 0, 1000, 1 << 10]
    assert sizes_of("4M,0,1000,1K", 4) == expected
    for name, text in {
        "a.txt": "4M 0\n1000  # the third\n1K\n",
        "a.csv": "4M;0;1000;1K\n",
        "a.json": '["4M", 0, 1000, "1K"]',
    }.items():
        (tmp_path / name).write_text(text)
        assert sizes_of(str(tmp_path / name), 4) == expected
    (tmp_path / "pairs").write_text("0,4M\n1000,1K\n")
    assert sizes_of(str(tmp_path / "pairs"), 2, "all_to_all") == [0, 4 << 20, 1000, 1 << 10]


def test_wrong_sizes_are_refused_with_their_line(tmp_path):
    path = tmp_path / "counts.csv"
    path.write_text("4M,0\n1,-3\n")
    with pytest.raises(DataError, match="line 2: expected a size"):
        sizes_of(str(path), 4)
    with pytest.raises(UsageError, match="expected 3 sizes, one for each rank, found 2"):
        sizes_of("1M,2M", 3)
    with pytest.raises(UsageError, match="one collective on all ranks"):
        uneven_collective((CollectiveRequest("all_gather", 0, (1, 2)),), "1,2", 3, None)


def test_the_chunk_that_is_asked_for_is_used():
    ((request,), size_bytes) = uneven_collective((CollectiveRequest("gather"),), "1M,0,3M", 3, 1 << 20)
    assert request.sets.blocks.chunks.tolist() == [1, 0, 3]
    assert size_bytes == 4 << 20
