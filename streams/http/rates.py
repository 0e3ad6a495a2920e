"""Refuses tokens that ask more often than their rate."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from streams.database.remembered import Forgettable
from streams.http.problems import Problem

# Tokens that are remembered.
MOST = 10_000


@dataclass
class Bucket:
    """What is left of a rate, and since when."""

    left: float
    at: float

    def filled(self, rate: float, size: float) -> float:
        now = time.monotonic()
        self.left = min(size, self.left + (now - self.at) * rate)
        self.at = now
        return self.left


_tokens: Forgettable[int, Bucket] = Forgettable()


def refuse_fast(token: int, rate: int | None) -> None:
    """Take one request from the rate of a token; raises Problem (429) if nothing is left."""
    if rate is None:
        return
    rate = max(rate, 1)  # a row that was written by hand
    bucket = _bucket(token, rate)
    if bucket.filled(rate, rate) < 1:
        text = "The token has sent more requests than its rate."
        wait = max(1, math.ceil((1 - bucket.left) / rate))
        raise Problem(429, "too_many_requests", text, retry_after=wait)
    bucket.left -= 1


def _bucket(token: int, size: float) -> Bucket:
    if len(_tokens) >= MOST and token not in _tokens:
        _tokens.pop(next(iter(_tokens)))  # the oldest
    return _tokens.setdefault(token, Bucket(size, time.monotonic()))
