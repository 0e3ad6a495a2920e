"""Refuses who asks too often: tokens by their rate, addresses that guess tokens."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TypeVar

from django.utils.translation import gettext as _

from streams.http.problems import Problem

K = TypeVar("K")

# Wrong tokens of one address, in one process.
GUESSES, GUESS_SECONDS = 10, 60.0
# Addresses and tokens that are remembered.
MOST = 10_000


@dataclass
class Bucket:
    """Holds what is left of a rate, and since when."""

    left: float
    at: float

    def filled(self, rate: float, size: float) -> float:
        now = time.monotonic()
        self.left = min(size, self.left + (now - self.at) * rate)
        self.at = now
        return self.left


_tokens: dict[int, Bucket] = {}
_guessers: dict[str, Bucket] = {}


def forget() -> None:
    """Forget what was counted."""
    _tokens.clear()
    _guessers.clear()


def refuse_fast(token: int, rate: int | None) -> None:
    """Take one request from the rate of a token; raises Problem (429) if nothing is left."""
    if rate is None:
        return
    rate = max(rate, 1)  # a row that was written by hand
    bucket = _bucket(_tokens, token, rate)
    if bucket.filled(rate, rate) < 1:
        raise _too_many(
            _("The token has sent more requests than its rate."), (1 - bucket.left) / rate
        )
    bucket.left -= 1


def refuse_guesser(address: str) -> None:
    """Raise a Problem (429) for an address that has sent too many wrong tokens."""
    bucket = _guessers.get(address)
    rate = GUESSES / GUESS_SECONDS
    if bucket and bucket.filled(rate, GUESSES) < 1:
        raise _too_many(
            _("Too many wrong tokens came from this address."), (1 - bucket.left) / rate
        )


def count_guess(address: str) -> None:
    """Count a wrong token."""
    bucket = _bucket(_guessers, address, GUESSES)
    bucket.left = max(0.0, bucket.left - 1)  # however many came at once, a minute is the longest


def _bucket(buckets: dict[K, Bucket], key: K, size: float) -> Bucket:
    if len(buckets) >= MOST and key not in buckets:
        buckets.pop(next(iter(buckets)))  # the oldest
    return buckets.setdefault(key, Bucket(size, time.monotonic()))


def _too_many(detail: str, seconds: float) -> Problem:
    return Problem(429, "too_many_requests", detail, retry_after=max(1, math.ceil(seconds)))
