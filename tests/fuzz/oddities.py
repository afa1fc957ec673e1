"""Values that readers stumble over, as JSON and as text."""

from __future__ import annotations

import json
import random
from typing import Any

__all__ = ["Raw", "dumps", "numbers", "odd_text", "odd_value", "tweaked"]


class Raw(str):
    """Text that stands in the JSON as it is, for what no Python value is written as."""


_INTS = (
    0, 1, -1, 2, 3, 7, 255, 256, -128, 1 << 15, 1 << 16, (1 << 31) - 1, 1 << 31, -(1 << 31) - 1,
    (1 << 32) - 1,
    1 << 32, (1 << 53) + 1, (1 << 63) - 1, 1 << 63, -(1 << 63), -(1 << 63) - 1, (1 << 64) - 1, 1 << 64,
    10**30,
)  # fmt: skip
_FLOATS = (
    0.5, -0.0, 0.0, 1.0, 1.5, 1e-9, 1e9, 1e308, -1e308, 5e-324, 2.2e-308, 1e-320, 1e18, 1e300, 1e-300, 3.0,
    -1e-9,
)  # fmt: skip
_RAW = (
    "NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1e-400", "1E+2", "0x10", "01", "+1", "1.", ".5", "-",
    "9" * 400, "9" * 5000, "-" + "9" * 5000, "0." + "1" * 5000, "1e99999999999",
    '"\\ud800"', '"\\u0000"', "'x'",
    "nul", "True", '"\x01"', "1_000", "[1,]", '{"a":1,}', "// x\n1", "tru", '"unterminated', "\u00b2",
)  # fmt: skip
_TEXTS = (
    "", " ", "0", "1", "-1", "x", "all_reduce", "custom", "several", "é", "ランク", "\u0000", "\u202e",
    "\r\n", "\t",
    "\x1b[31m", "../../etc/passwd", "-", "--help", "%s%n", "{rank}", "{0.__class__}", "$HOME", "NaN",
    "inf", "null",
    "<b>&amp;</b>", "]]>", "a" * 1000, "a,b", 'q"q', "\\", "None", "GPU0", "mpi", "Simple", "LL", "sum",
    "float32",
)  # fmt: skip
_TEXT_NUMBERS = (
    "0", "-0", "1", "-1", "00", "007", "+5", "1e9", "1e308", "1e309", "-1e309", "1e-320", "nan", "NaN", "inf",
    "-inf", "Infinity", "²", "１２", "٣", "½", "0x10", "0b1", "1_000", "1,5", "1.5.2", ".5", "5.",
    "2147483647",
    "2147483648", "4294967296", "9223372036854775807", "9223372036854775808", "18446744073709551616",
    "9" * 50,
    "9" * 400, "9" * 5000, "-" + "9" * 5000, "0." + "0" * 5000 + "1", "", " ", "x", "-", "1 2", "None",
    "1e", "e1",
    "99999999", "65536", "1048576", "1000000",
)  # fmt: skip
_TEXT_WORDS = (
    *_TEXTS, "a" * 70000, "gpu[1-3]", "gpu[1-", "gpu]1[", "a:²", "a:0", "a:-1", "[1-99999999]", "1GB/s",
    "-1GB/s",
    "1e-320GB/s", "0GB/s", "1e308GB/s", "GB/s", "1us", "-1us", "1e308s", "nans", "1K", "1e30", "9e30",
    "NV18", "SYS",
    "#", "# x", "'", '"', "[", "]", "{", "}", "=", "==", "\ufeff", "\u2028", "\x85", "\x0b", "\x1c",
)  # fmt: skip


def numbers() -> tuple[int | float, ...]:
    """Numbers that Python writes as JSON by itself."""
    return *_INTS, *_FLOATS


def odd_value(rng: random.Random) -> Any:
    """Any JSON value, most of them of a type or size that no field has."""
    pick = rng.random()
    if pick < 0.35:
        return rng.choice(_INTS)
    if pick < 0.5:
        return rng.choice(_FLOATS)
    if pick < 0.62:
        return Raw(rng.choice(_RAW))
    if pick < 0.77:
        return rng.choice(_TEXTS)
    if pick < 0.87:
        return rng.choice((None, True, False))
    if pick < 0.99:
        return rng.choice(
            ([], {}, [[]], [None], {"": {}}, [0], [1.5], ["x"], [[0, 1]], {"a": 1}, [0] * 300, [-1])
        )
    return rng.choice(
        (Raw("[" * 3000 + "]" * 3000), Raw('{"a":' * 500 + "1" + "}" * 500), "y" * 200_000, [0] * 50_000)
    )


def tweaked(rng: random.Random, value: Any) -> Any:
    """A value near ``value``, of the same type where it is a number, a truth or a text."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice(
            (value + 1, value - 1, -value, value * 2, value // 2, rng.randrange(9), value + (1 << 32))
        )
    if isinstance(value, float):
        scale = rng.choice((2.0, 0.5, -1.0, 1e-3, 1e3, 1e150, 1e-150, 1 + 1e-12))
        return value * scale
    if isinstance(value, str) and value:
        at = rng.randrange(len(value))
        return rng.choice(
            (
                value[:at] + value[at + 1 :],
                value + value,
                value.upper(),
                value[:at] + rng.choice("x0-é ") + value[at:],
            )
        )
    return odd_value(rng)


def odd_text(rng: random.Random, *, number: bool) -> str:
    """A word for a place where a text file has a number, or a word."""
    return rng.choice(_TEXT_NUMBERS if number and rng.random() < 0.8 else _TEXT_WORDS)


def dumps(document: Any, **how: Any) -> str:
    """JSON in which every Raw stands as it is."""
    raws: list[str] = []

    def marked(value: Any) -> Any:
        if isinstance(value, Raw):
            raws.append(str(value))
            return f"@raw{len(raws) - 1}@"
        if isinstance(value, dict):
            return {key: marked(entry) for key, entry in value.items()}
        if isinstance(value, list):
            return [marked(entry) for entry in value] if any(map(_holds, value)) else value
        return value

    text = json.dumps(marked(document), **how)
    for number, raw in enumerate(raws):
        text = text.replace(f'"@raw{number}@"', raw)
    return text


def _holds(value: Any) -> bool:
    return isinstance(value, (Raw, dict, list))
