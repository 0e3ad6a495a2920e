"""Writes what a call has done as a digest, and as details that people can read."""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Set
from dataclasses import dataclass
from typing import Any

from streams.errors import Retry, describe
from streams.operate.shadow.statement import Written
from streams.operate.shadow.undone import Result

# The most bytes of the details of a call, before compression. What is beyond is kept as a digest.
DETAILS_BYTES = 256 * 1024

ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")

# What a call does, in the order in which differences are shown.
KINDS = ("raised", "wrote", "sent", "on_commit")


@dataclass(frozen=True)
class Details:
    """Holds what a call has done, by KINDS; ``more`` has what was too long: counts and digests."""

    did: dict[str, list[Any]]
    more: dict[str, str]

    @classmethod
    def of(cls, result: Result) -> Details:
        did = {
            "raised": _raised(result),
            "wrote": [[one.verb, one.table, one.values] for one in result.wrote],
            "sent": [[one.verb, one.table, one.values] for one in result.sent],
            "on_commit": [result.callbacks] if result.callbacks else [],
        }
        return cls(did, {})

    @classmethod
    def unpacked(cls, stored: bytes) -> Details:
        return cls(**json.loads(zlib.decompress(stored)))

    def digest(self) -> bytes:
        """Return the SHA-256 of all that the call did."""
        return hashlib.sha256(_json(self.did).encode()).digest()

    def packed(self) -> bytes:
        """Return the details, cut to DETAILS_BYTES, as they are stored."""
        room = DETAILS_BYTES
        kept: dict[str, list[Any]] = {}
        more: dict[str, str] = {}
        for kind, things in self.did.items():
            kept[kind] = []
            for place, thing in enumerate(things):
                room -= len(_json(thing))
                if room < 0:
                    rest = things[place:]
                    digest = hashlib.sha256(_json(rest).encode()).hexdigest()
                    more[kind] = f"{len(rest)} more, SHA-256 {digest[:16]}…"
                    break
                kept[kind].append(thing)
        return zlib.compress(_json({"did": kept, "more": more}).encode())

    def lines(self, kind: str, ignored: Set[str]) -> list[str]:
        """Return a line for each thing of this kind, without the ``ignored`` TABLE.COLUMNs."""
        found = [_line(thing, ignored) for thing in self.did[kind]]
        return [*found, *([self.more[kind]] if kind in self.more else [])]


def _raised(result: Result) -> list[Any]:
    if result.error is not None:
        return [_error(result.error)]
    return [f"{one.offset}: {_error(one.error)}" for one in result.failures]


def _error(error: BaseException) -> str:
    delay = f" (delay {error.delay})" if isinstance(error, Retry) and error.delay else ""
    return ADDRESS.sub("0x…", describe(error)) + delay


def _line(thing: Any, ignored: Set[str]) -> str:
    if not isinstance(thing, list | tuple):
        return str(thing)
    verb, table, values = thing
    kept = tuple((name, text) for name, text in values if f"{table}.{name}" not in ignored)
    return str(Written(verb, table, kept))


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
