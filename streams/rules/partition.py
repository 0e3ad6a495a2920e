"""Chooses the partition of a key, and checks the choice of a project."""

from __future__ import annotations

import zlib
from typing import Any

from streams.rules.errors import InvalidMessage


def partition_of(key: str, count: int) -> int:
    """Return the number of the partition for ``key``: CRC-32 of its UTF-8 bytes modulo ``count``.

    It is the CRC-32 of IEEE 802.3, as in zlib; in MySQL: ``MOD(CRC32(key), count)``. It never
    changes, so one key stays in one partition as long as the topic does not grow.
    """
    return zlib.crc32(key.encode()) % count


def checked_choice(number: Any, path: str, count: int) -> int:
    """Return what the project's partitioner has chosen; raises InvalidMessage."""
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < count:
        raise InvalidMessage(
            f"The partitioner {path} gave {number!r}, which is not a number from 0 to {count - 1}."
        )
    return number
