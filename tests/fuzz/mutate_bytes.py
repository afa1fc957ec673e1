"""Damage below the format: bits, encodings, line ends, compression."""

from __future__ import annotations

import gzip
import random
import zlib
from collections.abc import Callable

__all__ = ["damaged", "respelled"]

_SPECIAL = (
    b"\x00",
    b"\xff",
    b"\xfe\xff",
    b"\xef\xbb\xbf",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\x1b",
    b"\x1f\x8b",
    b"\r",
    b"\x85",
)


def damaged(rng: random.Random, content: bytes) -> bytes:
    """``content`` with some damage, most of which makes it unreadable."""
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        content = rng.choice(_DAMAGE)(rng, content)
    return content


def respelled(rng: random.Random, content: bytes) -> bytes:
    """The same content, spelled so that every reader must take it: compressed whole."""
    return gzip.compress(content, rng.choice((1, 6, 9)), mtime=rng.choice((0, 1 << 31)))


def _flip(rng: random.Random, content: bytes) -> bytes:
    if not content:
        return b"\x00"
    changed = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 20))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _cut(rng: random.Random, content: bytes) -> bytes:
    return (
        content[: rng.randrange(len(content) + 1)]
        if rng.random() < 0.7
        else content[rng.randrange(len(content) + 1) :]
    )


def _insert(rng: random.Random, content: bytes) -> bytes:
    at = rng.randrange(len(content) + 1)
    new = rng.choice(_SPECIAL) if rng.random() < 0.6 else rng.randbytes(rng.choice((1, 4, 64)))
    return content[:at] + new * rng.choice((1, 1, 1, 50)) + content[at:]


def _slice(rng: random.Random, content: bytes) -> bytes:
    first, last = sorted(rng.randrange(len(content) + 1) for _ in range(2))
    last = min(last, first + rng.choice((1, 8, 100, 10_000)))
    return content[:first] + content[first:last] * rng.choice((0, 2, 3)) + content[last:]


def _encoding(rng: random.Random, content: bytes) -> bytes:
    text = content.decode("utf-8", "replace")
    coding = rng.choice(
        ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-7", "utf-8-sig", "cp037", "latin-1")
    )
    return text.encode(coding, "replace")


def _line_ends(rng: random.Random, content: bytes) -> bytes:
    return content.replace(
        b"\n", rng.choice((b"\r\n", b"\r", b"\n\n", b"\x00\n", b"\x0b", "\u2028".encode(), b" "))
    )


def _gzip(rng: random.Random, content: bytes) -> bytes:
    packed = gzip.compress(content, 1, mtime=0)
    return rng.choice(
        (
            packed[: rng.randrange(len(packed))],
            packed[:-8] + bytes(8),
            packed + b"trailing",
            packed + packed,
            packed + bytes(100),
            gzip.compress(packed, 1),
            _flip(rng, packed),
            packed[:3] + b"\xff" + packed[4:],
            zlib.compress(content),
            b"\x1f\x8b",
            packed[:10],
        )
    )


def _bomb(rng: random.Random, content: bytes) -> bytes:
    if rng.random() > 0.05:
        return content
    filler = rng.choice((b" ", b"[", b"\x00", b"9", b"a,b\n"))
    middle = filler * ((1 << 28) // len(filler))
    return gzip.compress(rng.choice((b"", content[: len(content) // 2])) + middle, 1, mtime=0)


def _trivial(rng: random.Random, content: bytes) -> bytes:
    return rng.choice(
        (
            b"",
            b" \n",
            b"\x00" * 64,
            b"null",
            b"{}",
            b"[]",
            b"<",
            b"<a/>",
            b"\xef\xbb\xbf",
            content + content,
            b"#",
            b"1",
        )
    )


_DAMAGE: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    _flip, _flip, _flip, _cut, _cut, _insert, _insert, _slice, _slice, _encoding, _line_ends, _gzip,
    _bomb, _trivial,
)  # fmt: skip
