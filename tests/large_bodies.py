"""Makes bodies around the size from which they are compressed: of each type, that shrink or not."""

from __future__ import annotations

from random import Random
from typing import Any

from streams import body as bodies
from streams.rules.stored_body import COMPRESSED_FROM

SIZES = (COMPRESSED_FROM - 1, COMPRESSED_FROM, COMPRESSED_FROM + 1, 4 * COMPRESSED_FROM)


def as_sent(size: int) -> list[Any]:
    """Return values whose bodies have exactly ``size`` bytes: JSON, texts and bytes."""
    item = '{"sku":"A-17","name":"Tee \U0001f375 für Zoë","price":"49.90"},'
    text = (item * (size // 40)).encode()[: size - 4].decode(errors="ignore")
    filled = text + "." * (size - 4 - len(text.encode()))
    noise = Random(size).randbytes(size)  # noqa: S311 - the same bodies in each run
    return [
        [filled.replace('"', "'")],  # with brackets and quotes: 4 bytes more
        filled + "~~~~",
        noise,
        noise[: size // 4] + bytes(size - size // 4),
        "".join(chr(33 + byte % 90) for byte in noise),  # shrinks a little
    ]


VALUES = [value for size in SIZES for value in as_sent(size)]
RAW = [bodies.encode(value) for value in VALUES]
assert [len(raw) for raw, _type in RAW] == [size for size in SIZES for _value in as_sent(size)]
