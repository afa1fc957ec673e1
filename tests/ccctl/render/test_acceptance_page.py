"""The page of an acceptance: one file, the verdict on the first screen, every text only text."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from certificates import CABLE, CERTIFICATES, accepted, certificates, refused, remarks
from drawn_examples import chessboard, drawn
from hypothesis import given, settings
from slow_host import profile_with_slow_host, report_beside

from ccctl.artifacts.codec import Artifact
from ccctl.render import acceptance_page
from exec.acceptance import changes

EMPTY = {"meta", "br"}


class Tags(HTMLParser):
    """The tags and attributes of a page; whether each tag is closed, in order."""

    def __init__(self):
        super().__init__()
        self.open, self.names, self.attributes, self.words = [], set(), set(), []

    def handle_starttag(self, tag, attrs):
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.names.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


def parsed(text):
    found = Tags()
    found.feed(text)
    found.close()
    assert found.open == []
    return found


def full():
    """The page of a refused cluster with pictures and changes."""
    profile = profile_with_slow_host()
    report = report_beside(profile, (1 << 16, 1 << 20))
    artifacts = [
        Artifact("profile", profile, "profile.json", ""),
        Artifact("report", report, "bench.json", ""),
    ]
    return acceptance_page.page(
        refused(), artifacts, changes(remarks(), refused()), made="ccctl 1", file="c.json"
    )


def wide():
    """The page of a certificate with words that no screen has room for."""
    word = "x" * 120
    culprit = replace(CABLE, part=word, text=word, evidence=(word,), remedy=word)
    return acceptance_page.page(
        replace(
            refused(),
            reason="the cluster was refused: " + "many words and " * 8,
            spec=word,
            culprits=(culprit,),
            skipped={word: word},
            unread={word: word},
            files={word: word},
        )
    )


PAGES = {
    **{name: acceptance_page.page(one) for name, one in CERTIFICATES.items()},
    "full": full(),
    "wide": wide(),
}


@pytest.mark.parametrize("name", PAGES)
def test_the_page_loads_nothing(name):
    text = PAGES[name]
    assert re.findall(r"(?:src(?:set)?=|@import|url\(|https?://(?!www\.w3\.org/2000/svg))", text) == []
    assert set(re.findall(r"href='(.)", text)) == {"#"}
    assert "default-src 'none'" in text and "<script" not in text
    targets = set(re.findall(r"href='#([\w-]+)'", text))
    assert targets <= set(re.findall(r"id='([\w-]+)'", text))
    parsed(text)


def test_it_tells_all_that_the_certificate_holds():
    words = " ".join(parsed(PAGES["full"]).words)
    for part in (
        "3 faults on 10 of 12 hosts",
        "2 skipped",
        "dgx-h100/8x400",
        CABLE.text,
        *CABLE.evidence,
        CABLE.remedy,
        "An all_reduce of 1 GiB takes 34 ms now, and 21 ms once it is repaired, by the model",
        "gpu[013-014]",
        "no answer to ssh within 10 s",
        "needs root, or nvidia-smi with administrator rights",
        "latency of 40 of 132 pairs",
        "leave out gpu007 and gpu011",
        "a" * 64,
        "5" * 64,
        "2.27.3",
        "ccctl verify c.json",
        "it was accepted with remarks",
        "bandwidth of 132 links between 12 ranks",
    ):
        assert part in words
    order = [
        words.index(part) for part in ("Refused", CABLE.text, "all_gather", "gpu[013-014]", "ccctl verify")
    ]
    assert order == sorted(order)


def test_evidence_of_several_lines_is_folded():
    text = PAGES["refused"]
    assert text.count("<details>") == 2 and text.count("<details open>") == 1


def test_an_accepted_cluster_has_no_culprits_and_says_so():
    assert "None: every part that was tested is as it should be." in PAGES["accepted"]
    assert "class='cards'" not in PAGES["accepted"]


def test_the_bars_of_a_cost_are_in_proportion():
    widths = re.findall(r"<i style='width:([\d.]+)%'>", PAGES["refused"])
    assert list(map(float, widths[:2])) == [100.0, pytest.approx(100 * 21 / 34, abs=0.1)]


@given(certificates(), certificates())
@settings(max_examples=drawn(40))
def test_any_text_is_text(before, certificate):
    found = parsed(
        acceptance_page.page(certificate, (), changes(before, certificate), made="<b>", file="<i>&'")
    )
    usual = parsed(acceptance_page.page(refused(), (), changes(remarks(), refused())))
    assert found.names <= usual.names | {"br"} | parsed(PAGES["accepted"]).names
    assert found.attributes <= usual.attributes | parsed(PAGES["accepted"]).attributes


def test_marks_in_names_are_not_marks():
    odd = "<script>alert(1)</script>'\" onload=x"
    culprit = replace(CABLE, part=odd, text=odd, evidence=(odd,), remedy=odd)
    text = acceptance_page.page(
        replace(accepted(), verdict="refused", reason=odd, tested=(odd,), culprits=(culprit,))
    )
    assert "<script" not in text and text.count("&lt;script&gt;") >= 5


BOX = "return document.querySelector('{}').getBoundingClientRect().{}"


@pytest.fixture(scope="module")
def opened(tmp_path_factory, browser_tab):
    """A function that opens one of the pages in a browser."""
    folder = tmp_path_factory.mktemp("pages")
    for name, text in PAGES.items():
        (folder / f"{name}.html").write_text(text)

    def show(name, **screen):
        browser_tab.open((folder / f"{name}.html").as_uri(), **screen)
        return browser_tab

    return show


@pytest.mark.parametrize(("width", "dark"), chessboard([1280, 390], [False, True]))
@pytest.mark.parametrize("name", PAGES)
def test_the_verdict_is_the_first_thing_seen_and_nothing_overflows(opened, name, width, dark):
    tab = opened(name, width=width, dark=dark)
    assert tab.messages() == []
    assert tab.run("return document.documentElement.scrollWidth <= innerWidth")
    first = tab.run("return document.querySelector('.verdict h1').textContent")
    assert first.lower() == CERTIFICATES.get(name, refused()).verdict
    assert tab.run(BOX.format(".verdict", "top")) < 40
    assert tab.run(BOX.format(".verdict", "bottom")) < 600


def test_sentences_are_wrapped_on_a_narrow_screen(opened):
    hidden = """
return [...document.querySelectorAll('.long .scroll')].filter(one => one.scrollWidth > one.clientWidth)
  .map(one => one.textContent);
"""
    for name in ("full", "wide"):
        assert opened(name, width=390).run(hidden) == []


@pytest.mark.parametrize("width", [1280, 390])
def test_the_worst_culprit_and_its_cost_are_within_600_pixels(opened, width):
    tab = opened("full", width=width)
    assert "gpu007 mlx5_2" in tab.run("return document.querySelector('.cards li').textContent")
    assert tab.run(BOX.format(".cards li .cost", "bottom")) < 600


# The contrast of text and ground that WCAG 2.2 asks for (1.4.3).
CONTRAST = """
const light = words => {
  const parts = words.match(/\\d+/g).slice(0, 3).map(one => one / 255)
    .map(one => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
  return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
};
const verdict = document.querySelector('.verdict');
const ground = light(getComputedStyle(verdict).backgroundColor);
return [...verdict.querySelectorAll('h1, p')].map(one => {
  const ink = light(getComputedStyle(one).color);
  return (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05);
});
"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", CERTIFICATES)
def test_the_verdict_can_be_read(opened, name, dark):
    ratios = opened(name, dark=dark).run(CONTRAST)
    assert len(ratios) == 3 and min(ratios) >= 4.5
