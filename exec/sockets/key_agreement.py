"""Agreement on a run's key over a medium that others can read, such as a store of PyTorch.

Rank 0 draws the key and sends it to each rank under a pad from a Diffie-Hellman exchange in the 2048-bit
group of RFC 3526 (Sec. 3). A reader of the medium learns nothing. A writer could act as a man in the middle,
unless all ranks have a secret from their launcher. That secret is then part of every pad.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from hashlib import blake2b

from probes.base import UnavailableError

__all__ = ["agree"]

_PRIME = int(
    "FFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74020BBEA63B139B22514A08798E3404DD"
    "EF9519B3CD3A431B302B0A6DF25F14374FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED"
    "EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF0598DA48361C55D39A69163FA8FD24CF5F"
    "83655D23DCA3AD961C62F356208552BB9ED529077096966D670C354E4ABC9804F1746C08CA18217C32905E462E36CE3B"
    "E39E772C180E86039B2783A2EC07A28FB5C55DF06F4C52C9DE2BCBF6955817183995497CEA956AE515D2261898FA0510"
    "15728E5A8AACAA68FFFFFFFFFFFFFFFF",
    16,
)
# RFC 3526: the generator (Sec. 3), and the larger estimate for an exponent's size (Sec. 8).
_GENERATOR = 2
_PRIVATE_BITS = 320
# The length of the prime, 2048 bits.
_PUBLIC_BYTES = 256
# The halves of a 64-byte digest, the longest of BLAKE2b, are the pad and the MAC's key.
_KEY_BYTES = _MAC_BYTES = 32


def agree(rank: int, size: int, exchange: Callable[[bytes], list[bytes]], secret: bytes = b"") -> bytes:
    """Return the same 32 secret bytes on all ranks; collective.

    ``exchange`` is an all-gather of bytes in the order of ranks, called twice. ``secret`` is the launcher's
    secret, if any. Raises UnavailableError if a rank has another secret or somebody interferes. O(size)
    exponentiations on rank 0.
    """
    private = secrets.randbits(_PRIVATE_BITS) | 1 << (_PRIVATE_BITS - 1)
    own_public = pow(_GENERATOR, private, _PRIME).to_bytes(_PUBLIC_BYTES, "big")
    public = exchange(own_public)

    def pads(other: int, recipient: int) -> tuple[bytes, bytes]:
        """Return the pad and the MAC key that rank 0 and ``recipient`` share."""
        other_public = int.from_bytes(public[other], "big")
        if len(public[other]) != _PUBLIC_BYTES or not 1 < other_public < _PRIME - 1:
            raise _refused(other)
        shared = pow(other_public, private, _PRIME).to_bytes(_PUBLIC_BYTES, "big")
        bound = shared + public[0] + public[recipient] + recipient.to_bytes(8, "big")
        key = blake2b(secret, digest_size=64).digest()
        derived = blake2b(bound, key=key, person=b"ccctl key", digest_size=64).digest()
        return derived[:_KEY_BYTES], derived[_KEY_BYTES:]

    if rank > 0:
        sealed = exchange(b"")[0]
        part = sealed[(rank - 1) * (_KEY_BYTES + _MAC_BYTES) : rank * (_KEY_BYTES + _MAC_BYTES)]
        pad, mac_key = pads(0, rank)
        hidden = part[:_KEY_BYTES]
        if not hmac.compare_digest(part[_KEY_BYTES:], _mac(mac_key, hidden)):
            raise _refused(0)
        return _xor(hidden, pad)
    key = secrets.token_bytes(_KEY_BYTES)
    content = b""
    for other in range(1, size):
        pad, mac_key = pads(other, other)
        hidden = _xor(key, pad)
        content += hidden + _mac(mac_key, hidden)
    exchange(content)
    return key


def _mac(key: bytes, content: bytes) -> bytes:
    return blake2b(content, key=key, digest_size=_MAC_BYTES).digest()


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def _refused(rank: int) -> UnavailableError:
    return UnavailableError(
        f"no key agreed on with rank {rank}: its CCCTL_SECRET differs, or somebody changes the store",
        hint="Give all ranks the same CCCTL_SECRET, or none of them one.",
    )
