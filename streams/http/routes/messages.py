"""Shows messages and what became of them."""

from __future__ import annotations

from ninja import Router

router = Router(tags=["Messages"])
