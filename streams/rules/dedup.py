"""Defines how a dedup key is stored, and how long it may be held."""

from __future__ import annotations

import hashlib
from datetime import timedelta

MAX_WINDOW = timedelta(days=366)


def hash_of(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
