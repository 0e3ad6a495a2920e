"""Hands messages to clients that pull them."""

from __future__ import annotations

from ninja import Router

router = Router(tags=["Consume"])
