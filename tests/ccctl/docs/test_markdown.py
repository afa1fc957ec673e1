"""The site's pages of reference as Markdown."""

from ccctl.docs import markdown
from ccctl.docs.page import Entries, Page, Section, Text


def test_what_markdown_reads_as_its_own_is_shown_as_it_is():
    page = Page(
        "ccctl-x", 1, "a|b", (Section("OPTIONS", (Text("x*y_z"), Entries((("--at <N>", "[1<=x]"),)))),)
    )
    assert markdown.written(page) == (
        "# ccctl x\n\nA\\|b.\n\n## Options\n\nx\\*y\\_z\n\n`--at <N>`\n:   \\[1\\<=x\\]\n"
    )
