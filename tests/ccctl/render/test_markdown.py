from ccctl.render.markdown import cell, markdown_table


def test_a_table_has_a_rule_and_as_many_cells_as_columns():
    text = markdown_table(["a", "b"], [["x|y", 1], ["<b>", "two\nlines"]], [1])
    assert text.splitlines() == ["| a | b |", "| --- | ---: |", "| x\\|y | 1 |", "| &lt;b&gt; | two lines |"]


def test_a_cell_cannot_begin_code():
    assert cell("`\\") == "\\`\\\\"


def test_a_cell_makes_no_link_no_entity_and_no_character_that_steers():
    assert cell("[a](b) **&#x202e;\x9b\u202e") == "\\[a](b) \\*\\*&amp;#x202e;\\\\x9b\\\\u202e"
