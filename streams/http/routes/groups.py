"""Looks at groups and changes them."""

from __future__ import annotations

from ninja import Router

router = Router(tags=["Groups"])
