"""Looks at topics and changes them."""

from __future__ import annotations

from ninja import Router

router = Router(tags=["Topics"])
