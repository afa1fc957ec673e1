"""The judge takes what things are from others, and computes for itself; import-linter holds most of this."""

import ast
from pathlib import Path

import synth.check

# Packages that say what things are and also make them.
TYPES = {
    "synth.groups": {"Division", "Groups"},
    "synth.networks": set(),
}


def test_of_packages_that_make_things_it_takes_only_the_types():
    taken = [
        (node.module, alias.name)
        for path in Path(synth.check.__file__).parent.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module in TYPES
        for alias in node.names
    ]
    assert taken
    assert [(module, name) for module, name in taken if name not in TYPES[module]] == []
