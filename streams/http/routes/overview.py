"""Sums up topics and groups."""

from __future__ import annotations

from ninja import Router

router = Router(tags=["Overview"])
