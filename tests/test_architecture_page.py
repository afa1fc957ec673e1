"""docs/reference/architecture.md names what is there: every path exists, and every package has its line."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/reference/architecture.md").read_text()
FLOORS = ("probes", "synth", "exec", "ccctl")


def test_every_file_that_it_names_exists():
    named = re.findall(rf"`((?:{'|'.join(FLOORS)})/[\w/]+\.py)`", PAGE)
    assert len(named) > 40
    assert [path for path in named if not (ROOT / path).is_file()] == []


def test_every_package_has_its_line():
    packages = [
        folder.relative_to(ROOT).as_posix()
        for floor in FLOORS
        for folder in sorted((ROOT / floor).iterdir())
        if (folder / "__init__.py").is_file()
    ]
    table = PAGE.partition("| package |")[2].partition("## Glossary")[0]
    missing = [name for name in packages if f"{name.partition('/')[2]}/`" not in table]
    assert missing == []


def test_every_package_has_a_first_page():
    inits = [path for floor in FLOORS for path in (ROOT / floor).rglob("__init__.py")]
    assert [str(path) for path in inits if not path.read_text().startswith('"""')] == []
