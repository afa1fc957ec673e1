"""Whatever a name holds, a file with it is XML; in attributes it comes back but for what XML forbids."""

from xml.etree import ElementTree

from hypothesis import given, strategies as st

from probes.base.visible_text import shortened, unsteered
from probes.base.xml_text import as_attribute, as_content

CHARACTERS = st.text(st.characters() | st.sampled_from("\x00\x1b\x7f\ud800\udfff\ufffe\uffff&<>'\"\r\n\t"))


@given(CHARACTERS)
def test_any_text_makes_xml(words):
    root = ElementTree.fromstring(f"<a b={as_attribute(words)}>{as_content(words)}</a>".encode())
    # A parser reads each end of a line as one newline, in attributes as written.
    assert len(root.get("b", "")) == len(words)
    assert (root.text or "") == _allowed(unsteered(shortened(words)))


@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0xD7FF)))
def test_what_xml_allows_is_kept_in_attributes_and_steers_nobody(words):
    written = as_attribute(words)
    assert written == unsteered(written)
    assert ElementTree.fromstring(f"<a b={written}/>").get("b") == words


def _allowed(words):
    return "".join(one if _is_allowed(one) else "\ufffd" for one in words)


def _is_allowed(one):
    code = ord(one)
    return one in "\t\n\r" or 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or code >= 0x10000
