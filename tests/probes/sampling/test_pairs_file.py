import pytest

from probes.base.errors import DataError
from probes.sampling.pairs_file import parse_pairs, resolve
from probes.sampling.samples import Place

PLACES = [Place("gpu1", 8), Place("gpu1", 8), Place("gpu2", 8), Place("gpu2", 8)]


def resolved(text):
    return resolve(parse_pairs(text, "pairs.txt"), PLACES)


def test_pairs_are_ranks_or_hosts_in_rounds_or_in_one():
    assert resolved("# a comment\n\n0 2\n3 1 # back\n") == [[(0, 2), (3, 1)]]
    assert resolved("gpu1 gpu2\ngpu1:1 gpu2:1\n3 gpu1") == [[(0, 2), (1, 3), (3, 0)]]


def test_rounds_come_in_the_order_of_their_numbers():
    assert resolved("7 0 1\n2 2 3\n7 3 0") == [[(2, 3)], [(0, 1), (3, 0)]]


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("", ["expected SRC DST or ROUND SRC DST in each line, found no pair"]),
        ("0 1\n0\n1 2 3 4", ["line 2: ", "line 3: "]),
        ("x 0 1", ["line 1: expected SRC DST or ROUND SRC DST; 'x' is not the number of a round"]),
        (
            "0 9\ngpu3 gpu1\n0 1",
            ["line 1: there is no rank or host '9'", "line 2: there is no rank or host 'gpu3'"],
        ),
        ("gpu1:2 0\ngpu1:x gpu9", ["line 1: ", "line 2: there is no rank or host 'gpu1:x' nor 'gpu9'"]),
        ("0 gpu1", ["line 1: 0 and gpu1 are the same rank"]),
        ("0 1\n1 0\n0 gpu1:1", ["line 3: the pair of line 1 again"]),
    ],
)
def test_every_bad_line_is_told_by_its_number(text, problems):
    with pytest.raises(DataError) as caught:
        resolved(text)
    assert len(caught.value.problems) == len(problems)
    for found, expected in zip(caught.value.problems, problems, strict=True):
        assert found.startswith(expected)


@pytest.mark.parametrize("word", ["9" * 5000, "²", "٣", "h:" + "9" * 5000, "h:²"])
def test_a_number_that_no_rank_has_is_refused(word):
    with pytest.raises(DataError):
        resolve(parse_pairs(f"{word} 0\n", "x"), [Place("h", 0), Place("h", 1)])
    with pytest.raises(DataError):
        parse_pairs(f"{word.removeprefix('h:')} 0 1 2\n", "x")
