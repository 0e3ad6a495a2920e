"""Which partition a message goes to."""

from __future__ import annotations

import itertools
import random
import zlib
from typing import Any

from django.utils.translation import gettext as _

from streams.errors import UnknownPartition

# Where this process goes on with messages that have no key; begun anywhere, so that many short
# processes do not all fill partition 0.
_turn = itertools.count(random.randrange(1 << 16))  # noqa: S311


def partition_of(key: str, count: int) -> int:
    """The number of the partition for this key: CRC-32 of its UTF-8 bytes, modulo ``count``.

    The CRC-32 of IEEE 802.3, as in zlib; MySQL says the same: ``MOD(CRC32(key), count)``. It never
    changes, so one key stays in one partition as long as the topic does not grow.
    """
    return zlib.crc32(key.encode()) % count


def choose(
    partitions: tuple[tuple[int, int], ...], key: str | None, number: Any
) -> tuple[int, int]:
    """One of the (id, number) of a topic: the wanted one, that of the key, or the next in turn.

    Raises UnknownPartition.
    """
    if number is not None:
        if not isinstance(number, int) or isinstance(number, bool):
            raise UnknownPartition(_("partition must be a number, not %r.") % (number,))
        if not 0 <= number < len(partitions):
            raise UnknownPartition(
                _("There is no partition %(number)d: the topic has %(count)d, from 0 on.")
                % {"number": number, "count": len(partitions)}
            )
        return partitions[number]
    if len(partitions) == 1:
        return partitions[0]
    if key is not None:
        return partitions[partition_of(key, len(partitions))]
    return partitions[next(_turn) % len(partitions)]
