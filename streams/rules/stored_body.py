"""Compresses bodies for storage, and gives them back: all code that reads or writes one is here.

A body of COMPRESSED_FROM bytes or more is stored compressed if that is smaller. The column
``body_type`` tells it: a compressed body has another value there. ``size`` is always that of the
body itself. Nobody outside the tables sees the difference.
"""

from __future__ import annotations

import zlib

from streams.rules.body import BYTES, JSON, TEXT
from streams.rules.errors import DamagedBody

COMPRESSED_FROM = 4096

# The fastest one. The higher ones cost a sender more than they save on the disk.
LEVEL = 1

# The values of body_type for compressed bodies; at most five letters, as the column has.
COMPRESSED = {JSON: "zjson", TEXT: "ztext", BYTES: "zbyte"}
LOGICAL = {stored: body_type for body_type, stored in COMPRESSED.items()}


def to_stored(raw: bytes, body_type: str) -> tuple[bytes, str]:
    """Return what to write into the columns ``body`` and ``body_type``."""
    if len(raw) >= COMPRESSED_FROM:
        compressed = zlib.compress(raw, LEVEL)
        if len(compressed) < len(raw):
            return compressed, COMPRESSED[body_type]
    return raw, body_type


def logical_type(stored_type: str) -> str:
    """Return json, text or bytes for a value of the column ``body_type``."""
    return LOGICAL.get(stored_type, stored_type)


def from_stored(stored: bytes | memoryview, stored_type: str, size: int) -> bytes:
    """Return the body as it was sent; raises DamagedBody.

    A compressed one gives at most ``size`` bytes, which is what its row says that it has. A stored
    body of no bytes is one that was deleted from its row, whatever its type.
    """
    if stored_type not in LOGICAL or not stored:
        return bytes(stored)
    reader = zlib.decompressobj()
    try:
        # One byte more, or the end of the compressed bytes would not be read, nor their checksum.
        raw = reader.decompress(stored, size + 1)
    except zlib.error as error:
        raise DamagedBody(f"The stored body is damaged: {error}") from error
    if not reader.eof or len(raw) > size:
        raise DamagedBody(f"The stored body is damaged: it is cut, or has more than {size} bytes.")
    return raw


def bytes_to_cut(limit: int) -> int:
    """Return how many stored bytes are enough for the first ``limit`` bytes of any body.

    A symbol has at most 15 bits, and a block begins with less than 400 bytes about its code.
    """
    return 2 * limit + 400


def beginning(cut: bytes | memoryview, stored_type: str, limit: int) -> bytes:
    """Return the first ``limit`` bytes of a body; of ``cut``, its first stored bytes, which may be
    all. Raises DamagedBody.
    """
    if stored_type not in LOGICAL or not cut:
        return bytes(cut[:limit])
    try:
        return zlib.decompressobj().decompress(cut, limit)
    except zlib.error as error:
        raise DamagedBody(f"The stored body is damaged: {error}") from error
