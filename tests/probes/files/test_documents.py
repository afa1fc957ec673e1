"""Documents in JSON and TOML that nobody vouches for."""

import pytest

from probes.base import DataError
from probes.files import parse_document


def test_both_forms_give_a_table():
    assert parse_document("[a]\nb = 1", "x", "TOML") == {"a": {"b": 1}}
    assert parse_document('{"a": {"b": 1}}', "x", "JSON") == {"a": {"b": 1}}


@pytest.mark.parametrize(
    ("text", "form", "said"),
    [
        ("{", "JSON", "expected JSON"),
        ("[1]", "JSON", "expected a table with names"),
        ("a =", "TOML", "expected TOML"),
        ("[" * 100_000, "JSON", "nested too deep"),
        ('{"a": ' + "1" * 5000 + "}", "JSON", "expected JSON"),
        (".".join("a" * 100) + " = 1", "TOML", "line 1: expected a key of up to 64 parts"),
        (".".join(["'a'"] * 100) + " = 1", "TOML", "line 1: expected a key of up to 64 parts"),
        # The apostrophes are in a string and around one, and do not quote the key.
        (
            'a = ["""\n\'""", {' + ".".join("a" * 100) + " = 1, b = ''}]",
            "TOML",
            "line 2: expected a key of up to 64 parts",
        ),
    ],
)
def test_anything_else_is_refused_with_its_source(text, form, said):
    with pytest.raises(DataError, match=said) as refused:
        parse_document(text, "plan.toml", form)
    assert refused.value.source == "plan.toml"


@pytest.mark.parametrize(
    "text",
    [
        'a = """\n{}"""',
        "a = '''\n{}'''",
        'a = "\\"{}"',
        "# don't count {}\na = 1",
        "a = [{}0.5]",
    ],
)
def test_dots_that_are_not_of_a_key_are_no_parts(text):
    dots = "0.5, " * 100 if "[" in text else "." * 100
    assert "a" in parse_document(text.format(dots), "x", "TOML")
