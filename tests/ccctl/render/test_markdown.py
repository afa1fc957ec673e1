from ccctl.render.markdown import cell, markdown_table


def test_a_table_has_a_rule_and_as_many_cells_as_columns():
    text = markdown_table(["a", "b"], [["x|y", 1], ["<b>", "two\nlines"]], [1])
    assert text.splitlines() == ["| a | b |", "| --- | ---: |", "| x\\|y | 1 |", "| &lt;b> | two lines |"]


def test_a_cell_cannot_begin_code():
    assert cell("`\\") == "\\`\\\\"
