"""Values between processes: what is sent arrives, and no bytes do more than give wrong data."""

import enum
import os
import pickle
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest
from drawn_examples import drawn
from hypothesis import given, settings, strategies as st

from exec import records
from exec.launcher.protocol import Failure, Heartbeat, Lost
from exec.program.interpreter import interpret
from exec.records import UnsendableError, decode, encode
from probes.base.errors import UsageError

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.binary()
    | st.fractions()
    | st.complex_numbers(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=5) | st.integers() | st.tuples(st.integers()), inner, max_size=4)
        | st.frozensets(st.integers() | st.text(max_size=3), max_size=4)
    ),
    max_leaves=25,
)


class Colour(enum.Enum):
    RED = "red"


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass(frozen=True, slots=True)
class Slotted:
    value: Any
    seen: list[Any] = field(default_factory=list)


class LookError(LookupError):
    """An error that only its own module knows."""


class Strange:
    """Neither plain nor a record."""


@given(PLAIN)
def test_plain_values_arrive_as_they_are(value):
    found = decode(encode(value))
    assert found == value and type(found) is type(value)


def test_records_arrive_as_they_are():
    records.share_functions_of(interpret.__module__)
    values = [
        Colour.RED,
        Pair(1, [2]),
        Slotted(Pair(3, 4)),
        Lost(1, "is gone"),
        Path("/a/b"),
        range(2, 9, 3),
        {1, 2},
    ]
    values += [
        Heartbeat,
        interpret,
        range(2, 9, 3),
        bytearray(b"x"),
        np.float32(1.5),
        np.int64(-3),
        1 << 300,
        -(1 << 64),
    ]
    assert decode(encode(values)) == values
    assert decode(encode(Failure("text", (UsageError, "m", {"hint": "h"})))).error == (
        UsageError,
        "m",
        {"hint": "h"},
    )


@pytest.mark.parametrize(
    "dtype", ["?", "i1", "u8", "f2", "f4", "f8", "c16", "S3", "U2", "M8[s]", [("a", "i4"), ("b", "f8", 2)]]
)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 0, 4)])
def test_arrays_arrive_as_they_are(dtype, shape):
    array = np.zeros(shape, dtype)
    found = decode(encode(array))
    assert found.dtype == array.dtype and found.shape == array.shape and found.tobytes() == array.tobytes()
    assert found.flags.writeable
    array.flags.writeable = False
    assert not decode(encode(array)).flags.writeable
    turned = np.arange(6.0).reshape(2, 3).T
    assert np.array_equal(decode(encode(turned)), turned)


def test_what_is_sent_twice_is_one_value():
    shared = np.arange(100_000)
    first, second = Slotted(shared), Slotted(shared)
    found = decode(encode([first, first, second]))
    assert found[0] is found[1] and found[0].value is found[2].value
    assert len(encode([first, second])) < 1.1 * shared.nbytes


@pytest.mark.parametrize(
    "value",
    [
        Strange(),
        lambda: None,
        os.system,
        open,
        np.array([Strange()], dtype=object),
        Strange,
        os,
        Slotted(Strange()),
    ],
    ids=["object", "lambda", "system", "open", "array of objects", "class", "module", "inside"],
)
def test_what_is_no_record_is_refused_before_it_is_sent(value):
    with pytest.raises(UnsendableError):
        encode(value)


def test_values_shared_many_times_are_sent_once():
    value = (1, 2)
    for _ in range(60):
        value = (value, value)
    assert len(encode([value])) < 2000
    found = decode(encode([value]))[0]
    assert found[0] is found[1]


def test_no_few_bytes_are_hashed_for_ever():
    pair = [records._TUPLE, 1, 2]
    for number in range(60):
        pair = [records._TUPLE, pair, [records._AGAIN, number]]
    for hashed in ([records._SET, pair], [records._DICT, [pair], 1]):
        with pytest.raises(ValueError, match="in a key"):
            decode(msgspec.msgpack.encode(hashed))
    keys = {((1, 2), (1, 2)): "a", frozenset({(1,)}): [1]}
    assert decode(encode([keys, keys])) == [keys, keys]


@pytest.mark.parametrize("name", ["exec.launcher.run_folders:remove", "exec.records:encode"])
def test_functions_of_ccctl_that_no_task_needs_are_refused(name):
    with pytest.raises(ValueError, match="no function"):
        decode(msgspec.msgpack.encode([records._FUNCTION, name]))


def test_what_holds_itself_is_refused():
    value = []
    value.append(value)
    with pytest.raises(UnsendableError, match="in themselves"):
        encode(value)


NAMES = [
    "os:system",
    "builtins:eval",
    "subprocess:Popen",
    "pathlib:Path",
    "exec.launcher.run:os",
    "exec.records:importlib.import_module",
    "ccctl.__init__:load",
    "exec.records:UnsendableError",
    "not.there:x",
    "exec.not_there:x",
    "exec..records:x",
    "",
    7,
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "kind", ["_CLASS", "_FUNCTION", "_ENUM", "_NAMED_TUPLE", "_RECORD", "_ERROR", "_BUILTIN_ERROR"]
)
def test_names_of_anything_else_are_refused(kind, name):
    for arguments in ([], ["echo"], [[records._TUPLE], [records._DICT]]):
        with pytest.raises(ValueError, match="no message"):
            decode(msgspec.msgpack.encode([getattr(records, kind), name, *arguments]))


class Trap:
    """Acts when it is asked for an attribute, as ``ctypes.cdll`` loads a library."""

    def __init__(self):
        self.asked = []

    def __getattr__(self, name):
        self.asked.append(name)
        return None


TRAP = Trap()


@pytest.mark.parametrize("kind", ["_CLASS", "_FUNCTION", "_ENUM", "_NAMED_TUPLE", "_RECORD", "_ERROR"])
def test_a_name_in_a_message_asks_no_object_for_an_attribute(kind):
    for name in (f"{__name__}:TRAP./tmp/library", f"{__name__}:records.sys.path"):
        with pytest.raises(ValueError, match="no message"):
            decode(msgspec.msgpack.encode([getattr(records, kind), name]))
    # pytest itself asks for other names.
    assert "/tmp/library" not in TRAP.asked


@pytest.mark.parametrize("dtype", ["|V0", "|S0", "(,)i4"])
def test_an_array_of_no_bytes_or_of_no_type_is_refused(dtype):
    with pytest.raises(ValueError, match="no message"):
        decode(msgspec.msgpack.encode([records._ARRAY, dtype, False, [1 << 40], b""]))


class Harm:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@settings(max_examples=drawn(400))
@given(st.data())
def test_no_bytes_run_code_or_take_memory(data):
    value = {
        "schedule": [Heartbeat(1.0, 2.0, "doing"), np.arange(5), Pair(1, Colour.RED)],
        "of": Fraction(1, 3),
    }
    content = bytearray(encode(value))
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    for one in (bytes(content), data.draw(st.binary(max_size=60))):
        try:
            decode(one)
        except ValueError as error:
            assert "no message" in str(error)


def test_a_pickle_is_no_message(tmp_path):
    for protocol in range(2, 6):
        try:
            decode(pickle.dumps(Harm(tmp_path / "harm"), protocol))
        except ValueError:
            continue
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"\xdd\xff\xff\xff\xff", b"\x91" * 100_000, b"\xc6\xff\xff\xff\xff"])
def test_lengths_that_lie_are_refused(content):
    with pytest.raises(ValueError, match="no message"):
        decode(content)
