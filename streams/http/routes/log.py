"""Reads the log of a partition."""

from __future__ import annotations

from ninja import Router

router = Router(tags=["Log"])
