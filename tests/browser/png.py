"""Makes a PNG of a screen small: 256 colours are enough for text, tables and lines."""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

SIGNATURE = b"\x89PNG\r\n\x1a\n"
COLOURS = 256
# Colours that differ only in the lowest bits of each part count as one.
LOW_BITS = 2

Colour = tuple[int, ...]


def shrink(path: Path) -> None:
    """Write the picture anew with a palette. It must have 8 bits a channel, and no interlacing."""
    width, height, rows = _read(path.read_bytes())
    step = len(rows[0]) // width
    pixels = [[tuple(row[at : at + 3]) for at in range(0, len(row), step)] for row in rows]
    numbers, palette = _palette(Counter(pixel for row in pixels for pixel in row))
    lines = b"".join(b"\0" + bytes(numbers[pixel] for pixel in row) for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    chunks = {
        b"IHDR": header,
        b"PLTE": bytes(part for colour in palette for part in colour),
        b"IDAT": zlib.compress(lines, 9),
        b"IEND": b"",
    }
    path.write_bytes(SIGNATURE + b"".join(_chunk(*item) for item in chunks.items()))


def _palette(counts: Counter[Colour]) -> tuple[dict[Colour, int], list[Colour]]:
    """Return which entry stands for each colour, and the entries."""
    alike: dict[Colour, Counter[Colour]] = {}
    for colour, count in counts.items():
        alike.setdefault(tuple(part >> LOW_BITS for part in colour), Counter())[colour] = count
    kinds = sorted(alike, key=lambda kind: -alike[kind].total())
    palette = [alike[kind].most_common(1)[0][0] for kind in kinds[:COLOURS]]
    numbers = {}
    for kind in kinds:
        (first, _count), *_others = alike[kind].most_common(1)
        number = min(range(len(palette)), key=lambda n: _distance(palette[n], first))
        numbers.update(dict.fromkeys(alike[kind], number))
    return numbers, palette


def _distance(one: Colour, other: Colour) -> int:
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def _read(data: bytes) -> tuple[int, int, list[bytes]]:
    """Return width, height, and the rows of pixels without their filters."""
    chunks = list(_chunks(data))
    header = next(body for name, body in chunks if name == b"IHDR")
    width, height, depth, kind, _packing, _filters, interlaced = struct.unpack(">IIBBBBB", header)
    if depth != 8 or kind not in (2, 6) or interlaced:
        raise ValueError(f"cannot read a PNG of kind {kind} with {depth} bits")
    size = 3 if kind == 2 else 4
    raw = zlib.decompress(b"".join(body for name, body in chunks if name == b"IDAT"))
    rows: list[bytes] = []
    before = bytes(width * size)
    for number in range(height):
        start = number * (width * size + 1)
        line = bytearray(raw[start + 1 : start + 1 + width * size])
        _unfilter(raw[start], line, before, size)
        before = bytes(line)
        rows.append(before)
    return width, height, rows


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(SIGNATURE)
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        yield data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        at += length + 12


def _unfilter(kind: int, line: bytearray, above: bytes, size: int) -> None:
    """Add what the filter of the PNG specification has taken off, in place."""
    if kind == 0:
        return
    for at, value in enumerate(line):
        left = line[at - size] if at >= size else 0
        up = above[at]
        corner = above[at - size] if at >= size else 0
        guess = _paeth(left, up, corner) if kind == 4 else (0, left, up, (left + up) // 2)[kind]
        line[at] = (value + guess) & 255


def _paeth(left: int, up: int, corner: int) -> int:
    near = left + up - corner
    return min((left, up, corner), key=lambda value: abs(near - value))
