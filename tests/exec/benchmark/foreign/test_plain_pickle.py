"""Pickles of plain data are read as Python's own reader does; everything else is refused, and soon."""

import contextlib
import pickle
import struct

import pytest
from hypothesis import given, strategies as st

from exec.benchmark.foreign.plain_pickle import load_plain

_PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=300),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), inner, max_size=5)
        | st.lists(inner, max_size=4).map(tuple)
    ),
    max_leaves=40,
)


@given(_PLAIN, st.sampled_from([2, 3, 4, 5]))
def test_plain_data_are_read_as_they_were_written(value, protocol):
    assert load_plain(pickle.dumps(value, protocol)) == value


@given(_PLAIN, st.sampled_from([2, 4]), st.data())
def test_whatever_a_damaged_pickle_holds_it_is_read_or_refused(value, protocol, data):
    content = bytearray(pickle.dumps(value, protocol))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ValueError):
        load_plain(bytes(content))


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(content):
    with contextlib.suppress(ValueError):
        load_plain(content)


def test_lists_of_numbers_as_pytorch_writes_them_are_read():
    listed = b"\x80\x02}q\x00X\x01\x00\x00\x00sctorch.jit._pickle\nbuild_intlist\nq\x01(](K\x02K\x03etRs."
    assert load_plain(listed) == {"s": [2, 3]}


def test_shared_values_are_read():
    shared = ["a", "b"]
    assert load_plain(pickle.dumps([shared, shared, (shared,)])) == [shared, shared, (shared,)]


def _doubling(levels):
    value = [0, 0]
    for _ in range(levels):
        value = [value, value]
    return pickle.dumps(value)


@pytest.mark.parametrize(
    "content",
    [
        _doubling(40),
        # An index, a length and an integer that would take gigabytes.
        b"\x80\x02Nr"
        + struct.pack("<I", 2**31)
        + b"]"
        + b"r"
        + struct.pack("<I", 2**32 - 1)
        + b"X\xff\xff\xff\x7f.",
        b"\x80\x02\x8b" + struct.pack("<i", 2**30) + b"1" * 64 + b".",
        b"\x80\x02" + b"]" * 10_000 + b"a" * 9_999 + b".",
        # A list that holds itself.
        b"\x80\x02]q\x00h\x00a.",
        # Growth after the value was used often.
        b"\x80\x02]q\x00]q\x01(" + b"h\x00" * 100 + b"eh\x00(" + b"K\x01" * 100 + b"e.",
        pickle.dumps(print),
        pickle.dumps({1, 2}),
        pickle.dumps(b"bytes"),
        b"cos\nsystem\n(X\x02\x00\x00\x00lstR.",
        b"",
        b"\x80\x02(.",
    ],
    ids=[
        "doubling",
        "index",
        "integer",
        "depth",
        "itself",
        "growth",
        "print",
        "set",
        "bytes",
        "system",
        "empty",
        "mark",
    ],
)
def test_what_is_no_plain_data_or_too_much_is_refused(content):
    with pytest.raises(ValueError):
        load_plain(content)
