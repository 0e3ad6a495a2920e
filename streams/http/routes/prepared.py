"""Prepares messages and decides about them."""

from __future__ import annotations

from ninja import Router

router = Router(tags=["Two-phase"])
