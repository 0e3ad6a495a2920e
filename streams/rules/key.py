"""Hashes keys, to tell which messages of a partition belong together."""

from __future__ import annotations

from hashlib import blake2b


def key_hash(key: str) -> int:
    """Return the BLAKE2b hash of the UTF-8 bytes of ``key``: 64 bits, as a signed number.

    It is not the one that chooses the partition: of all keys with that one, many share a partition.
    Two keys with one hash wait for each other, which costs time and breaks no order.
    """
    return int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "big", signed=True)
