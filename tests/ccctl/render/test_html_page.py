"""The page of `ccctl report` in a real browser: it opens, nothing is clipped, and keys reach everything."""

import pytest
from drawn_examples import chessboard
from limits import HANG_S
from slow_host import fill

from ccctl.artifacts import codec
from ccctl.render.svg import WITHOUT_PICTURE

# Texts beyond their picture, or over each other, and pictures wider than the window.
CLIPPED = """
const found = [];
if (document.documentElement.scrollWidth > innerWidth) found.push('the page is wider than the window');
for (const svg of document.querySelectorAll('figure svg')) {
  const whole = svg.getBoundingClientRect();
  if (!whole.width) continue;
  if (whole.left < 0 || whole.right > innerWidth)
    found.push('picture: ' + svg.querySelector('title').textContent);
  const boxes = [];
  for (const text of svg.querySelectorAll('text')) {
    const box = text.getBoundingClientRect(), said = text.textContent;
    if (box.left < whole.left - 1 || box.right > whole.right + 1 ||
        box.top < whole.top - 1 || box.bottom > whole.bottom + 1) found.push('outside: ' + said);
    for (const [other, name] of boxes)
      if (Math.min(box.right, other.right) - Math.max(box.left, other.left) > 2 &&
          Math.min(box.bottom, other.bottom) - Math.max(box.top, other.top) > 4)
        found.push('overlap: ' + name + ' and ' + said);
    boxes.push([box, said]);
  }
}
return found;
"""
# The first letters of what has the keyboard; none while that is the page as a whole.
FOCUSED = """
const focused = document.activeElement;
return focused === document.body ? '' : focused.textContent.slice(0, 40);
"""
# (title, axes, legend, its smallest letters in pixels) of each picture that is shown.
PICTURES = """
const shown = [...document.querySelectorAll('figure svg')].filter(svg => svg.getBoundingClientRect().width);
return shown.map(svg => [
  svg.querySelector('title').textContent,
  [...svg.querySelectorAll('.axis')].map(text => text.textContent),
  [...svg.querySelectorAll('.legend')].map(text => text.textContent),
  Math.min(...[...svg.querySelectorAll('text')].map(text =>
    parseFloat(getComputedStyle(text).fontSize || text.getAttribute('font-size')) *
    svg.getBoundingClientRect().width / svg.viewBox.baseVal.width)),
]);
"""


@pytest.fixture(scope="module")
def opened(samples, tmp_path_factory, browser_tab, _warm_commands):
    """(browser, address of the page)."""
    folder = tmp_path_factory.mktemp("page")
    fill(folder, samples)
    done = _warm_commands.run(["report", ".", "-o", "report.html"], "", folder, HANG_S)
    assert done.returncode == 0, done.stderr
    # Drop the messages of a page that was open before.
    browser_tab.messages()
    return browser_tab, (folder / "report.html").as_uri()


@pytest.mark.parametrize(("width", "dark"), chessboard([1280, 390], [False, True]))
def test_it_opens_without_errors_and_nothing_is_clipped(opened, width, dark):
    page, address = opened
    page.open(address, width=width, dark=dark)
    assert page.messages() == []
    assert page.run("return innerWidth") == width
    assert page.run(CLIPPED) == []


@pytest.mark.parametrize("width", [1280, 390])
def test_every_picture_has_a_title_axes_units_and_a_legend_that_can_be_read(opened, width):
    page, address = opened
    page.open(address, width=width)
    found = page.run(PICTURES)
    # Each kind that is drawn has one at least, a profile two, and a report with a breakdown four.
    assert len(found) >= len(codec.KINDS) - len(WITHOUT_PICTURE) + 1 + 3
    for title, axes, legend, letters in found:
        assert title
        assert legend, title
        assert letters >= 8, title
        units = ("GB/s", "(bytes)", "time", "%", "×", "iteration", "steps")
        assert any(unit in words for words in [*axes, *legend] for unit in units), title
    with_axes = {title for title, axes, _, _ in found if len(axes) >= 2}
    assert sum("all_reduce" in title or "bandwidth of" in title for title in with_axes) >= 3


def test_the_slow_host_is_on_the_first_screen(opened):
    page, address = opened
    for width, height in ((1280, 900), (390, 844)):
        page.open(address, width=width, height=height)
        first = "document.querySelector('.findings li')"
        assert "node3" in page.run(f"return {first}.textContent")
        assert page.run(f"return {first}.getBoundingClientRect().bottom") < height / 2


def test_names_of_files_are_not_broken_on_a_narrow_screen(opened):
    page, address = opened
    page.open(address, width=390)
    lines = """
return [...document.querySelectorAll('.files tbody tr')].map(row => {
  const range = document.createRange();
  range.selectNodeContents(row.children[0]);
  return range.getClientRects().length;
});
"""
    assert set(page.run(lines)) == {1}


def test_dark_is_dark_and_print_is_light(opened):
    page, address = opened
    lightness = "return getComputedStyle(document.body).backgroundColor"
    page.open(address, dark=True)
    assert page.run(lightness) == "rgb(22, 24, 28)"
    page.open(address, dark=True, media="print")
    assert page.run(lightness) == "rgb(255, 255, 255)"
    assert page.run("return getComputedStyle(document.querySelector('nav')).display") == "none"


def test_usual_links_are_near_to_the_ground_and_slow_ones_far_from_it(opened):
    page, address = opened
    cell = """
const cells = [...document.querySelectorAll('.wide rect')].filter(one => one.textContent.includes(' → '));
const found = cells.filter(one => one.textContent.includes('flagged') === SLOW)[0];
const [red, green, blue] = getComputedStyle(found).fill.match(/\\d+/g).map(Number);
return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
"""
    for dark, ground in ((False, 255.0), (True, 24.0)):
        page.open(address, dark=dark)
        slow, usual = (page.run(cell.replace("SLOW", word)) for word in ("true", "false"))
        assert abs(slow - ground) > 4 * abs(usual - ground)


def test_keys_reach_the_findings_the_sections_and_the_numbers(opened):
    page, address = opened
    page.open(address)
    reached = []
    for _ in range(40):
        page.press("\ue004")
        reached.append(page.run(FOCUSED))
    # A window that is not in front yet may lose the first key.
    assert next(filter(None, reached)) == "Skip to the findings"
    assert any(words.startswith("Numbers:") for words in reached)
    page.run("document.querySelector('summary').focus()")
    page.press("\ue007")
    assert page.run("return document.querySelector('details').open") is True
