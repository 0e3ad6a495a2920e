"""Writes a count with its words, in output that is English only, as that of the commands is."""

from __future__ import annotations


def plural(count: int, one: str, many: str) -> str:
    """Return the count with the words for one or for many: “1 message waits”."""
    return f"{count} {one if count == 1 else many}"
