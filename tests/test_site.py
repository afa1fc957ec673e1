"""The site of docs/: every page is in it, every link and anchor leads somewhere, nothing is loaded."""

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from ccctl.commands import COMMANDS

ROOT = Path(__file__).parents[1]
# Elements that a browser fetches by itself; a link (a, or link rel=canonical) waits for a reader.
FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}


class Found(HTMLParser):
    """The anchors of a page, where its links lead, and what a browser loads with it."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.links, self.loaded = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if "id" in given:
            self.anchors.add(given["id"])
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if (
            tag in FETCHED
            and given.get(FETCHED[tag])
            and given.get("rel") not in ("canonical", "prev", "next")
        ):
            self.loaded.append(given[FETCHED[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-P", "-m", "mkdocs", "build", "--strict", "--site-dir", folder]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site):
    return {path: Found(path.read_text()) for path in site.rglob("*.html") if path.name != "404.html"}


def test_every_page_of_docs_and_every_command_is_there(site, pages):
    wanted = [path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")]
    wanted += [Path("reference/commands", f"{command.__name__}.html") for command in COMMANDS]
    wanted += [Path("reference/commands/index.html"), Path("reference/artifacts.html")]
    assert {path.relative_to(site) for path in pages} == set(wanted)


def test_every_link_leads_to_a_page_and_to_an_anchor_that_it_has(site, pages):
    astray = []
    for page, found in pages.items():
        for link in found.links:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            anchors = pages[target].anchors if target in pages else ()
            if not target.exists() or (parts.fragment and unquote(parts.fragment) not in anchors):
                astray.append(f"{page.relative_to(site)}: {link}")
    assert astray == []


def test_a_browser_loads_nothing_from_elsewhere(site, pages):
    loaded = {(page, name) for page, found in pages.items() for name in found.loaded}
    assert len(loaded) > len(pages)
    assert [name for page, name in loaded if not (page.parent / unquote(name)).exists()] == []


def test_a_page_of_reference_says_what_the_manual_says(pages, site):
    page = (site / "reference/commands/bench.html").read_text()
    assert "--baseline FILE" in page and "ccctl bench schedule.json" in page
