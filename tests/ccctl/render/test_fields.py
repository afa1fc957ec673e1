"""Fields of results by name, as plain values and as the cells of a table."""

from dataclasses import dataclass

import numpy as np
import pytest

from ccctl.render.fields import Column, cells, figures, print_table


@dataclass(frozen=True)
class Part:
    name: str
    time_s: float | None
    share: float = 0.5


@dataclass(frozen=True)
class Whole:
    parts: tuple[Part, ...]
    samples_s: tuple[float, ...]
    column: np.ndarray
    rest: Part | None = None


WHOLE = Whole((Part("a", 1e-3), Part("b", None)), (1.0, 2.0), np.array([1, 2]))


def test_figures_are_plain_values_by_name():
    assert figures(WHOLE, "column names=parts.*.name samples_us rest rest_s=rest.time_s") == {
        "column": [1, 2],
        "names": ["a", "b"],
        "samples_us": [1e6, 2e6],
        "rest": None,
        "rest_s": None,
    }
    assert figures(WHOLE, "parts")["parts"][0] == {"name": "a", "time_s": 1e-3, "share": 0.5}
    assert figures(WHOLE.parts[0], "time_us share_percent") == {"time_us": 1e3, "share_percent": 50.0}
    assert figures({"row": WHOLE.parts[1]}, "row.time_us")["row.time_us"] is None


@pytest.mark.parametrize("name", ["nothing", "nothing_us", "name_kg"])
def test_a_field_that_is_not_there_is_an_error(name):
    with pytest.raises(AttributeError, match=f"Part has no field {name}"):
        figures(WHOLE.parts[0], name)


def test_cells_are_written_by_unit_form_or_function():
    columns = (
        Column("part", "name"),
        Column("time", "time_s"),
        Column("us", "time_us", "{:.1f}"),
        Column("share", lambda part: 100 * part.share, "{:.0f} %"),
    )
    heads, rows = cells(columns, WHOLE.parts)
    assert heads == ["part", "time", "us", "share"]
    assert rows == [["a", "1 ms", "1000.0", "50 %"], ["b", "-", "-", "50 %"]]


def test_columns_of_a_part_of_a_row_keep_their_unit():
    column = Column("time", "time_s").below(lambda whole: whole.rest)
    other = Column("time", "time_s").below(lambda whole: whole.parts[0])
    assert cells((column, other), [WHOLE])[1] == [["-", "1 ms"]]


def test_a_table_says_how_many_rows_it_leaves_out(capsys):
    said = []
    print_table((Column("part", "name"),), WHOLE.parts, said.append, most=1, noun="parts")
    assert said == ["part", "a", "… and 1 more parts"]
    print_table((Column("part", "name"),), WHOLE.parts, most=2, noun="parts")
    assert capsys.readouterr().out.splitlines() == ["part", "a", "b"]
