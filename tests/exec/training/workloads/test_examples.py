"""Examples from files: what is read, and what is refused."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies

from exec.training.workloads import read_examples
from probes.base import DataError, MissingInputError

LINE = ",".join(["0.5"] * 64) + ",3"


def written(folder: Path, text: str, name: str = "examples.csv") -> str:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return str(path)


@pytest.mark.parametrize("name", ["examples.csv", "examples.csv.gz"])
def test_rows_are_read_plain_and_compressed(tmp_path: Path, name: str) -> None:
    rows = read_examples(written(tmp_path, (LINE + "\n") * 7, name))
    assert rows.shape == (7, 65)
    assert (rows[:, :-1] == 0.5).all()
    assert (rows[:, -1] == 3).all()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "found 0"),
        (LINE, "at least 6 lines"),
        ("1,2,3\n" * 9, "64 numbers and a class"),
        ((LINE + "\n") * 6 + "a," + LINE[4:], "numbers a line"),
        ((LINE + "\n") * 6 + LINE[:-1] + "10", "row 7"),
        ((LINE + "\n") * 6 + LINE[:-1] + "2.5", "row 7"),
        ((LINE + "\n") * 6 + "nan" + LINE[3:], "row 7"),
        ((LINE + "\n") * 6 + "1e39" + LINE[3:], "row 7"),
        ((LINE + "\n") * 6 + LINE + ",1", "numbers a line"),
    ],
)
def test_other_files_are_refused_with_the_reason(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        read_examples(written(tmp_path, text))


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError):
        read_examples(str(tmp_path / "none.csv"))


@given(strategies.binary(max_size=300))
def test_garbage_never_crashes_the_reader(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("garbage") / "examples.csv"
    path.write_bytes(content)
    with pytest.raises(DataError):
        read_examples(str(path))


def test_given_examples_are_split_and_scaled() -> None:
    pytest.importorskip("torch")
    from exec.training.workloads.data import dataset, indices

    chance = np.random.default_rng(1)
    rows = np.hstack([chance.normal(5, 3, (60, 64)), chance.integers(0, 10, (60, 1))])
    rows[:, 0] = 7
    data = dataset("mlp", 4, rows)
    assert (len(data.labels), len(data.held_labels)) == (50, 10)
    assert np.allclose(data.inputs.mean(axis=0), 0, atol=1e-5)
    assert np.allclose(data.inputs[:, 1:].std(axis=0, correction=0), 1, atol=1e-5)
    assert (data.inputs[:, 0] == 0).all()
    chosen = [indices(step, 5, rank, 2, 4, 50).tolist() for step in range(5) for rank in range(2)]
    assert sorted(index for batch in chosen for index in batch) == list(range(50))
